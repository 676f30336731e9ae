"""Reads a table's metadata: state and snapshots, live files. Start with ``table_metadata.py``."""
