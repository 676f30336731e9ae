"""The verbs under ``decode``: what is in a file, without the table it belongs to."""
