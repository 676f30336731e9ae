"""Compares a mirror with its changelog, or with its source.

``mirror_verifier.py`` compares with the changelog, start there; ``source_comparison.py`` compares
with the source, once ``mirror_progress.py`` has waited for the mirror to pass a position. Both use
``row_comparison.py``: checksums by range of the key's hash first, then single keys.
``record_verifier.py`` compares tables of records, which have no mirror, with their source by
offsets.
"""
