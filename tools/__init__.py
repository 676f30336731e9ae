"""What builds and documents the project; nothing here is shipped."""
