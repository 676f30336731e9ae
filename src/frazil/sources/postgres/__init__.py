"""Changes from a PostgreSQL database, through a logical replication slot."""
