"""Upkeep of tables that are written all the time, next to merges and never in their way.

Facts of a table (``facts.py``) come from its metadata; a pure policy (``policy.py``) makes jobs of
them (``jobs.py``); a runner per kind of job performs them. Start with ``maintainer.py``.
"""
