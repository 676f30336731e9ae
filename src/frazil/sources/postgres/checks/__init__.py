"""Everything that ``frazil check`` can find at a Postgres server. Start with ``preflight.py``."""
