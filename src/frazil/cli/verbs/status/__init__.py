"""The command ``status``: from the running process, or from the lake. Start with ``verb.py``."""
