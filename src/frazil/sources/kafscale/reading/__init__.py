"""From segments to rows of tables, in Spark tasks; begin with ``reader``."""
