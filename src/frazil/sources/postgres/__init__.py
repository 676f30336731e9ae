"""Changes from a PostgreSQL database, through a logical replication slot.

``copy`` reads the initial copy of tables, ``stream`` the changes that follow, ``slot`` and
``publication`` these objects at the server, ``tables`` describes tables, ``checks`` finds problems
before a start. Start with ``source.py``.
"""
