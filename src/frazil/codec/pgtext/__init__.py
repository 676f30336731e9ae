"""The text that Postgres prints for values, as Arrow arrays. Start with ``convert.py``."""
