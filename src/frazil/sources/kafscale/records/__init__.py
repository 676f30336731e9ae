"""From the records of a segment to rows of tables, in Spark tasks; begin with ``reader``."""
