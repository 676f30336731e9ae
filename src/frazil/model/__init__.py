"""Values of the domain: schemas, keys, positions, markers, table names; standard library only.

Start with ``marker.py``; ``schema`` has types, partitioning and changes, ``postgres`` what a
server's catalog shows.
"""
