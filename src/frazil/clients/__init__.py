"""Doors to systems we do not own; each driver is imported behind one of them only."""
