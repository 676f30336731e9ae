"""For authors of sources: sources in memory, to read first and to test against.

Production code never imports it. Start with ``in_memory_source.py``, which has one log, copies and
transactions; ``in_memory_topic_source.py`` has partitions and several processes.
"""
