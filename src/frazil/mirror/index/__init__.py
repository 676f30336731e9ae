"""The key index of a mirror: maps the hash of each key to the data file and position of its row.

Start with ``repair.py``, which returns a usable index: loaded by ``loading.py``, repaired, or built
by ``run_building.py``. Tasks search it with ``locating.py``, a merge extends it with ``growth.py``,
and ``checking.py`` compares it with the data files.
"""
