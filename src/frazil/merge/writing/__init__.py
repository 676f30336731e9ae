"""What a merge task does with folded keys: locate, complete, write. Start with ``task.py``."""
