"""The documentation: generated pages, the site, and its pictures."""
