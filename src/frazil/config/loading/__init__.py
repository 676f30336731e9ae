"""From YAML text to checked values: tree, variables, overrides, messages.

Start with ``validation.py``.
"""
