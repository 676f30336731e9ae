"""The key index as bytes: head, manifest, runs of entries. Start with ``head.py``."""
