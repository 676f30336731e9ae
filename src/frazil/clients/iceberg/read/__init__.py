"""What a table's metadata says: state, live files, ranges of snapshots."""
