"""The state of a pipeline as values, and where they come from.

``values.py`` is the vocabulary, ``board.py`` the collector.
"""
