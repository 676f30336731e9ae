"""What is known of a topic's records: its plan, its columns in JSON, and its schema."""
