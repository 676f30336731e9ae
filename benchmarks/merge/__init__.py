"""Benchmarks of merges; ``merge_contest`` has the other side, Spark's ``MERGE INTO``."""
