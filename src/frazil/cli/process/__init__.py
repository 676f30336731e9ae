"""A command as a process: signals, supervision, exit. Start with ``role.py``."""
