"""The replication slot: who may read it, and whether it still gives what follows our position."""
