"""The key index of a mirror: load it, look keys up, grow it, repair it.

Start with ``repair.py``.
"""
