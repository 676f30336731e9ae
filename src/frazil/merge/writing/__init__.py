"""Runs inside merge tasks: admit changes, locate keys, complete rows, write files.

``task.py`` is the task, start there; ``key_writer.py`` writes rows, deletes and index entries.
``delete_writer.py`` runs on the driver, after the tasks.
"""
