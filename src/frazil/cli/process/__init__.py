"""A command as a process: signals, supervision, exit."""
