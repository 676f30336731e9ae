"""The commands under ``position``: show markers, and set one. Start with ``verbs.py``."""
