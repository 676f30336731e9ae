"""Records of KafScale topics, from segments in object storage."""
