"""By which columns a table can be mirrored, or why by none: one rule for check and for capture."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from frazil.model.postgres.facts import PublishedTable, TableFacts


class NoKeyReason(StrEnum):
    """Why a table gets a changelog and no mirror."""

    UNKNOWN_COLUMNS = "the configured key has columns the table lacks"
    NOT_PUBLISHED = "key columns are not published"
    NONE = "the table has no primary key, and none is configured"
    DEFERRABLE = "the primary key is deferrable, so a swap in one statement has no order"
    NO_IDENTITY = "the table has no replica identity"
    NOT_COVERED = "the replica identity lacks key columns"
    NOT_UNIQUE = "no unique index over all rows keeps the configured key unique and not null"
    NOT_SINGLE = "key columns hold lists"


@dataclass(frozen=True, slots=True)
class NoKey:
    """There is no key; ``columns`` are those to blame, where it is some."""

    reason: NoKeyReason
    columns: tuple[str, ...] = ()

    def __str__(self) -> str:
        named = f": {', '.join(self.columns)}" if self.columns else ""
        return f"{self.reason}{named}"


def mirror_key(
    table: TableFacts, published: PublishedTable | None, configured: tuple[str, ...]
) -> tuple[str, ...] | NoKey:
    """The columns that identify a row: those configured, else the primary key.

    A configured key must be unique at the source at every moment, which only an index there
    guarantees: else a mirror would show one of several rows. A row that goes must be found by what
    the server sends of it, so the replica identity has to have them all. Without ``published`` it
    is not known yet, and taken for all columns.
    """
    key = configured or (table.key.columns if table.key else ())
    unknown = tuple(column for column in key if table.attribute(column) is None)
    if unknown:
        return NoKey(NoKeyReason.UNKNOWN_COLUMNS, unknown)
    sent = key if published is None else published.columns
    unpublished = tuple(column for column in key if column not in sent)
    if unpublished:
        return NoKey(NoKeyReason.NOT_PUBLISHED, unpublished)
    if not key:
        return NoKey(NoKeyReason.NONE)
    if _is_deferrable(table, key):
        return NoKey(NoKeyReason.DEFERRABLE)
    if configured and not table.keys_within(configured):
        return NoKey(NoKeyReason.NOT_UNIQUE, configured)
    return _uncovered(table, key) or key


def _uncovered(table: TableFacts, key: tuple[str, ...]) -> NoKey | None:
    covers = table.identity_columns
    lacking = tuple(column for column in key if column not in covers)
    reason = NoKeyReason.NOT_COVERED if covers else NoKeyReason.NO_IDENTITY
    return NoKey(reason, lacking) if lacking else None


def _is_deferrable(table: TableFacts, key: tuple[str, ...]) -> bool:
    # Naming it in the configuration gives a swap no order either.
    own = table.key
    return own is not None and own.is_deferrable and set(own.columns) == set(key)
