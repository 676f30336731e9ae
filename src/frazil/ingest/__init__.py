"""From a source into changelogs: plan, read in tasks, commit each table, record, acknowledge.

Start with ``ingester.py``; ``batch_run.py`` runs one batch, ``task.py`` is what a Spark task does,
``planning`` decides schemas and table states without I/O.
"""
