"""The commands under ``position``: where the tables are, and moving one."""
