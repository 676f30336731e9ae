"""Dead letters of a pipeline for its operator. Start with ``dead_letters.py``."""
