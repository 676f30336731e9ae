"""What ``frazil check`` checks before anything starts."""
