"""The columns that a merge adds in front of the mirror's own, inside the Spark job.

Their names are refused in changelogs (``model.reserved_names``): they would be ambiguous.
"""

from __future__ import annotations

HI, LO = "__frazil_hi", "__frazil_lo"
# 0 is an upsert, 1 a delete, 2 a TRUNCATE, which has no key and never reaches the fold.
ACTION = "__frazil_action"
SEQUENCE = "__frazil_sequence"
IS_UPDATE = "__frazil_is_update"
UNCHANGED = "__frazil_unchanged"
PREVIOUS_HI, PREVIOUS_LO = "__frazil_previous_hi", "__frazil_previous_lo"
# Set on changes that were merged before: replays are compared with them.
MERGED = "__frazil_merged"

UPSERT, DELETE, TRUNCATE = 0, 1, 2
