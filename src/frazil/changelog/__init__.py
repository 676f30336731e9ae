"""Changelog tables: one row per change, append-only.

``table.py`` is the table and its commits, start there; ``layout.py`` is its schema, ``history.py``
loads the snapshots that a merge is planned from.
"""
