"""Iceberg's types, schemas, partitioning and how they change. Start with ``types.py``."""
