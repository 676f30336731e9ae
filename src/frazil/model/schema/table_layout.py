"""Which columns of ours a table of the lake has next to its source's, and how it is partitioned."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class OwnColumn(StrEnum):
    """Our columns in the order of a table; a value is the name behind the prefix."""

    OPERATION = "operation"
    SEQUENCE_NUMBER = "sequence_number"
    TIMESTAMP = "timestamp"
    LSN = "lsn"
    UNCHANGED = "unchanged"
    PREVIOUS_KEY = "previous_key"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLayout:
    """What a source wants of the table that its rows are appended to.

    ``columns`` are those of ours that it has. Without an operation it holds records, not changes:
    then columns of the source may be required. ``partition_by`` are names of partition fields and
    expressions, for tables whose partitioning is not configured; ``{prefix}`` is that of our
    columns, and a field without a name has the usual one. ``sort_by`` are expressions by which rows
    of a table of records are sorted. A table that is not ``is_created`` has to
    be made by its owner. ``offset_columns`` have the source's name, the partition's number and the
    offset of a record: a table with rows that another writer left is taken over from there.
    """

    columns: tuple[OwnColumn, ...] = tuple(OwnColumn)
    required: frozenset[OwnColumn] = frozenset({OwnColumn.OPERATION, OwnColumn.SEQUENCE_NUMBER})
    partition_by: tuple[tuple[str, str], ...] = ()
    sort_by: tuple[str, ...] = ()
    is_created: bool = True
    offset_columns: tuple[str, str, str] | None = None

    @property
    def has_operations(self) -> bool:
        """Whether its rows are changes."""
        return OwnColumn.OPERATION in self.columns

    @property
    def can_restart(self) -> bool:
        """Whether it can hold a TRUNCATE that no transaction of the source has made."""
        return self.has_operations and OwnColumn.TIMESTAMP not in self.required


CDC_LAYOUT = TableLayout()
