"""PostgreSQL's logical replication messages: one by one, and many at once as columns.

Start with ``messages.py``.
"""
