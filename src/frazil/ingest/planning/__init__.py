"""How changelogs follow their source: schema, states; pure. Start with ``changelog_plan.py``."""
