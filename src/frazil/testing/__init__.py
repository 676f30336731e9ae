"""For authors of sources: sources in memory to read first, and the contract suite for their tests.

Production code never imports it; the suite needs the extra ``testing``. Start with
``in_memory_source.py``, which has one log, copies and transactions;
``in_memory_topic_source.py`` has partitions and several processes. Then ``contract``.
"""
