"""Metric names, log format, tracing, error reporting: what the house says about itself."""
