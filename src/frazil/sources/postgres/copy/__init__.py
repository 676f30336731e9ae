"""The initial copy of tables: one snapshot, many page ranges, read in tasks.

Start with ``round.py``.
"""
