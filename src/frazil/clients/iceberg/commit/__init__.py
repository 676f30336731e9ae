"""Commits to a table exactly once.

``strict_commit.py`` makes one attempt, start there; ``retrying.py`` repeats it on conflicts.
``metadata_log.py`` decides whether a marker belongs to the table's history.
"""
