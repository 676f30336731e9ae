"""The command line; the only package that prints.

``app.py`` and ``groups.py`` have signatures and help, ``verbs/`` the commands themselves,
``process/`` signals and supervision, ``results/`` what commands print. Start with ``main.py``.
"""
