"""How changelogs follow their source: schema, table states; pure. Start with ``changelog_plan.py``."""
