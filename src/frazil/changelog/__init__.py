"""Changelog tables: one row per change, append-only.

``table.py`` is the table, its commits and what a merge is planned from, start there; ``layout.py``
is its schema.
"""
