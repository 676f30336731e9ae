"""What a batch of changes makes of each key; pure.

``fold.py`` is the rule, ``sorted_folder.py`` the form that tasks run.
"""
