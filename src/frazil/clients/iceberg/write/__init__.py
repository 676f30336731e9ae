"""Writes Arrow batches to Parquet files with Iceberg's metrics, inside tasks.

``task_writer.py`` writes the rows of one task, start there; ``data_file.py`` is one file.
``write_target.py`` is what a task must know about a table, ``conforming.py`` converts batches to
its schema, ``partition_*.py`` split them, and ``column_metrics.py`` computes what manifests record.
"""
