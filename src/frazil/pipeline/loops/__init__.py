"""The loops of a running process and the threads they use. Start with ``loop.py``."""
