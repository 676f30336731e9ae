"""The publication: what is checked, what would be changed, and changing it."""
