"""``frazil demo``: a changing shop, in Postgres or in topics, captured into a lake and verified.

Start with ``tour.py``; the tour of topics is ``topics_tour.py``.
"""
