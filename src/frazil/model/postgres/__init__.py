"""Facts, names, types and positions of PostgreSQL, as plain values. Start with ``facts.py``."""
