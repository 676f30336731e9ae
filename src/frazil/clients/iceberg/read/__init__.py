"""Reads a table's metadata: state and snapshots, live files, ranges of snapshots.

Start with ``table_metadata.py``.
"""
