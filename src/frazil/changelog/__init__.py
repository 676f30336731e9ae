"""Changelog tables: one row per change, appended and never touched again."""
