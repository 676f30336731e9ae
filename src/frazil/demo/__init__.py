"""Embedded services and a workload, for the first five minutes and for tests."""
