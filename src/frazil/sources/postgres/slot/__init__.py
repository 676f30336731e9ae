"""The replication slot: which process may read it, and whether it continues at our position.

Start with ``continuity.py``.
"""
