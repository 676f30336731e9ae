"""The key index of a mirror: maps the hash of each key to the data file and position of its row.

Start with ``keeping.py``, which returns a usable index (loaded by ``loading.py``, repaired, or
built by ``run_building.py``) and extends it by a merge. Tasks search it with ``locating.py``, and
``checking.py`` compares it with the data files.
"""
