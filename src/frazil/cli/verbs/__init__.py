"""The commands; ``position`` and ``status`` are packages.

``index.py`` is a short one to start with; ``run.py`` has those that run as a process.
"""
