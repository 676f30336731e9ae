"""Bytes to values and back: pure, so that every format can be tested without a service."""
