"""``frazil demo``: a shop in Postgres with a workload, captured into a lake and verified.

Start with ``tour.py``.
"""
