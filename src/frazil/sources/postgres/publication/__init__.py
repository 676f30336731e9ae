"""The publication: its checks, the plan to change it, the change. Start with ``changing.py``."""
