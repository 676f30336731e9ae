"""Bytes to values and back: pure, so that every format can be tested without a service.

``pgoutput``, ``pgcopy`` and ``pgtext`` decode what Postgres sends; ``puffin``, ``key_index`` and
``deletes`` are the files of a mirror.
"""
