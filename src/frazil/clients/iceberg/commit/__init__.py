"""Commits to a table exactly once.

``strict_commit.py`` makes one attempt, start there; ``retrying.py`` repeats it on conflicts.
``validity.py`` and ``metadata_log.py`` decide whether a marker belongs to the table's history.
"""
