"""Documents of two other systems, read as they are. ``loader.py`` recognises them."""
