"""The demo: ``services/`` are embedded servers, also for tests; ``tour/`` is ``frazil demo``.

Start with ``tour/tour.py``.
"""
