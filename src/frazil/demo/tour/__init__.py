"""``frazil demo``: a living shop in Postgres, captured into a lake and proven.

Start with ``tour.py``.
"""
