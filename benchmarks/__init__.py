"""Measurements: every claim is a ratio of two things measured in one run, alternating."""
