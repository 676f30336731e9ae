"""Deletion vectors and position delete files. Start with ``deletion_vector.py``."""
