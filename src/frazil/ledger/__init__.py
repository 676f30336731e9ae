"""The ledger of a pipeline: what was done, the state of each table, and dead letters."""
