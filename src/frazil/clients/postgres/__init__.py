"""The only package that talks to PostgreSQL: sessions, replication, queries of its catalog.

Start with ``connecting.py``; ``session.py`` and ``replication.py`` are the two kinds of connection.
"""
