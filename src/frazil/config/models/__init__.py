"""The sections of the document, as frozen models. Start with ``document.py``.

``values.py`` has the types of values, ``section.py`` what all sections share, and each kind of
source has its own ``*_source.py``.
"""
