"""Mirror tables: one row per key, the newest state.

``table.py`` is the table and its commit, start there. ``facts.py`` loads what a plan needs,
``deleted_rows.py`` and ``row_reader.py`` read files inside tasks, ``index/`` is the key index.
"""
