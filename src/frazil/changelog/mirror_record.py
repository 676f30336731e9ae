"""Which mirrors merge from a changelog: each writes its name there before its first merge.

Retention and expiry of the changelog keep what any of them needs, also one that another document
or a notebook merges. How far each is, its own marker says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.hooks import SystemClock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from frazil.clients.iceberg.table import LakeTable
    from frazil.hooks import Clock
    from frazil.model.table_name import TableName

# One property for each mirror, so that two that begin at once do not overwrite each other. The
# name is without the catalog, which every session may call differently.
MIRROR_PREFIX = "frazil.mirror."


def recorded_mirrors(properties: Mapping[str, str]) -> frozenset[str]:
    """The names of the mirrors that a changelog with these properties knows."""
    return frozenset(
        key.removeprefix(MIRROR_PREFIX) for key in properties if key.startswith(MIRROR_PREFIX)
    )


def record_mirror(changelog: LakeTable, mirror: TableName, *, clock: Clock | None = None) -> None:
    """Write down that the mirror merges from this changelog; the value says since when.

    It is a commit without a snapshot, once for each mirror. Raises CommitConflictError when other
    commits were faster each time, or what the catalog refuses it with.
    """
    since = (clock or SystemClock()).now().isoformat(timespec="seconds")
    changelog.upkeep().note({f"{MIRROR_PREFIX}{mirror}": since})
    changelog.show_latest()


def forget_statement(changelog: TableName, mirror: str) -> str:
    """The SQL after which nothing is kept for a mirror that is gone."""
    return f"ALTER TABLE {changelog.quoted} UNSET TBLPROPERTIES ('{MIRROR_PREFIX}{mirror}')"
