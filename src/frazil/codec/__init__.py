"""Bytes to values and back: pure, so that every format can be tested without a service.

Postgres: ``pgoutput``, ``pgcopy``, ``pgtext``; KafScale: ``kfs``; a mirror:
``puffin``, ``key_index``, ``deletes``.
"""
