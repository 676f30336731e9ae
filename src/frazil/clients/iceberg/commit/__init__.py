"""How a commit of ours reaches a table, exactly once. Start with ``strict_commit.py``."""
