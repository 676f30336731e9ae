"""Reduces a batch of changes to one outcome per key; pure.

``fold.py`` is the specification, start there. Tasks run ``sorted_folder.py``, or for rows that
moved to another key ``linked_fold.py``; ``change_rows.py`` has what both take and return.
"""
