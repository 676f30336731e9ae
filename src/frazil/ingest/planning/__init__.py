"""How a changelog follows its source: schema, column numbers, the state of each table; pure.

Start with ``changelog_plan.py``.
"""
