"""Documents of two other systems, read as they are. Start with ``dialects.py``."""
