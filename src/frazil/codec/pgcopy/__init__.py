"""The binary form of Postgres's COPY, as Arrow arrays. Start with ``fields.py``."""
