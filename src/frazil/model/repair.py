"""Why a key index could not be used as it was, and what was done about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RepairReason(StrEnum):
    """What was found instead of the index of the table's current state."""

    FOREIGN_COMMIT = "foreign_commit"
    NO_ANCESTOR = "no_ancestor"
    MISSING = "missing"
    DAMAGED = "damaged"
    OTHER_KEY = "other_key"
    ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True)
class Repair:
    """One repair: a rebuild reads every file, any other only the files that came since."""

    reason: RepairReason
    detail: str
    files_read: int
    rebuilt: bool
