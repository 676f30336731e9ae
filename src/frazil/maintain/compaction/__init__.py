"""Compaction: small files and files with many deleted rows become few, while merges go on.

A rewrite reads files as of one snapshot; deletes that are committed meanwhile are translated to the
new files when it lands. So a rewrite is never repeated, and a merge never waits for one.
"""
