"""The lake behind one door: catalogs, tables, commits, data files."""
