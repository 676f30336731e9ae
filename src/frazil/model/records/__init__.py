"""Records that are no rows: what was rejected, why, and the letter that keeps it."""
