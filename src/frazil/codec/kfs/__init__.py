"""KafScale's segment files and the Kafka record batches in them. Start with ``segment.py``."""
