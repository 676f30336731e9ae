"""What ``frazil check`` looks at before anything starts."""
