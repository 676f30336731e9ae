"""A range of a changelog, read and prepared by Spark for the tasks of a merge.

Start with ``changelog_reader.py``.
"""
