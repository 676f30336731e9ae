"""Adapters to systems we do not own; each driver library is imported by one of them only.

``spark/`` has sessions and tasks, ``iceberg/`` tables and commits, ``postgres/`` connections and
replication. Start with ``spark/session.py`` and ``iceberg/lake.py``.
"""
