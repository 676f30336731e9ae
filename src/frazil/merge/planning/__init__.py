"""Decides what a merge does, from facts about both tables; pure.

``plan.py`` makes the plan, start there. ``changelog_range.py`` chooses the snapshots,
``schema_mapping.py`` the mirror's schema, and ``changelog_columns.py`` finds the columns by role.
"""
