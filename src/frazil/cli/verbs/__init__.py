"""One module per command; ``position`` and ``status`` are folders of their own."""
