"""What the next run would do, table by table."""
