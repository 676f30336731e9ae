"""Deletion vectors and position delete files."""
