"""Mirror tables: one row per key, the newest state."""
