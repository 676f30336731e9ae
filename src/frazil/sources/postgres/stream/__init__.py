"""Changes from the replication slot: spooled on the driver, planned into batches, read in tasks.

Start with ``planner.py``.
"""
