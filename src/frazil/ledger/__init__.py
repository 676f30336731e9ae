"""The pipeline's own book: what was done, how each table stands, and what could not be written."""
