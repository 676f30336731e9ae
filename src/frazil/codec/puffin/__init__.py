"""Puffin files: blobs and a footer. Start with ``file.py``."""
