"""Arrow batches become Parquet files with Iceberg's metrics, inside tasks.

Start with ``task_writer.py``.
"""
