"""Merges changelogs into mirrors: plan, read, fold, write, commit.

``merger.py`` merges one table; ``library.py`` is the public ``frazil.merge_table``. ``planning/``
decides what a merge does, ``assembly.py`` loads what the plan needs, ``job.py`` runs the Spark job
(``reading/`` on the driver, ``folding/`` and ``writing/`` in tasks), ``apply.py`` commits. Start
with ``merger.py``, then ``planning/plan.py`` and ``folding/fold.py``.
"""
