"""Claimed events become typed rows: statements, columns, vectors. Start with ``reader.py``."""
