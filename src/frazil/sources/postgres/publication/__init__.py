"""The publication: what is checked, what would be changed, and changing it.

Start with ``planning.py``.
"""
