"""Access to Iceberg: catalogs, tables, commits, data files.

``lake.py`` opens and creates tables, start there; ``table.py`` is one table. ``commit/`` commits
exactly once, ``read/`` reads metadata, ``write/`` writes data files inside tasks.
"""
