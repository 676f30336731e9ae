"""Mirror tables: one row per key, the newest state.

``table.py`` is the table, its commit and what a plan needs of it, start there. ``deleted_rows.py``
and ``row_reader.py`` read files inside tasks, ``index/`` is the key index.
"""
