"""Which tables a pipeline has: their names, their settings, their mirrors."""
