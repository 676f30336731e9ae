"""One module per command; ``position`` and ``status`` are packages.

``merge.py`` is a short one to start with; ``run.py`` shows a command that runs as a process.
"""
