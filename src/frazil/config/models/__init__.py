"""The sections of the document, as frozen models. Start with ``document.py``."""
