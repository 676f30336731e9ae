"""The HTTP server of a process: status page, /status, probes and /metrics.

``app.py`` puts the routes together, ``server.py`` serves them in a thread; the page is
``pages.py`` (routes), ``page_view.py`` (what is shown) and ``page_rendering.py`` (HTML).
"""
