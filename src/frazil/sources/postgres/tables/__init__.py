"""Tables as the server's catalog shows them: selection, identity, description.

Start with ``description.py``.
"""
