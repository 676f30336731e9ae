"""Assemble real objects from configuration, run the loop, decide recovery."""
