"""Reads changelogs with Spark: the input of merge tasks, and what ``verify`` expects of a mirror.

Start with ``changelog_reader.py``; ``range_preparation.py`` handles TRUNCATE and linked keys, and
``expected_rows.py`` is the independent computation that ``verify`` uses.
"""
