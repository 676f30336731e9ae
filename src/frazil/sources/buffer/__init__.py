"""Changes from a table of events in a PostgreSQL database."""
