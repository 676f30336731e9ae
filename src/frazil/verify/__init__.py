"""Whether a mirror is what its changelog, or its source, says.

Start with ``mirror_verifier.py``.
"""
