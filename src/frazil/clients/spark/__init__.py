"""Spark: sessions, the JVM, jars, and errors that cross from tasks to the driver.

Start with ``session.py``.
"""
