"""Reduces a batch of changes to one outcome per key; pure.

``fold.py`` is the specification, start there. Tasks run ``arrow_fold.py``; ``change_rows.py`` has
what it takes and returns.
"""
