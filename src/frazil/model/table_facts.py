"""What a plan must know of a changelog and of its mirror: facts loaded once, never rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from frazil.errors import FrazilError
    from frazil.model.marker import Marker
    from frazil.model.schema.partitioning import PartitionSpec, SortOrder
    from frazil.model.schema.types import Schema
    from frazil.model.table_name import TableName

# Which column is which field of the next table; lands in the same commit as the schema it
# describes.
COLUMNS_PROPERTY = "frazil.columns"
# The epoch, and the ids of the dead letters whose rows the last replay appended: until they are
# removed from the dead letters, they are in both tables.
REPLAYED_PROPERTY = "frazil.replayed"
# The order that a mirror was merged with last, and the sequence that its rows without one have.
ORDER_PROPERTY = "frazil.order"
DEFAULT_SEQUENCE_PROPERTY = "frazil.order-floor"
# In the summary of a changelog's snapshot: at this point the source's state is incomplete.
INCOMPLETE_KEY = "frazil.incomplete"
# In the summary of a changelog's snapshot: it holds a copy of the entire source table, and nothing
# that came before it counts. The value is the epoch that all sequence numbers begin with from here.
RESTART_KEY = "frazil.restart"
# In the summary of a snapshot that upkeep made: the kind of its job. No row was changed that
# anybody reads.
UPKEEP_KEY = "frazil.upkeep"
# The highest data sequence number of the changes that retention has removed from a changelog: what
# is left of it does not make a mirror, but for a copy that is newer.
TRIMMED_PROPERTY = "frazil.trimmed"


class SnapshotOperation(StrEnum):
    """What Iceberg says a snapshot did."""

    APPEND = "append"
    REPLACE = "replace"
    OVERWRITE = "overwrite"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotLine:
    """One snapshot of a changelog, as its summary counts it.

    ``removes`` says that files or rows went away. ``restart`` is the epoch of a copy of the entire
    source table, with which it begins. ``committed_at`` is in milliseconds since the
    epoch. Without a ``schema_id`` it is read with the table's current schema.
    """

    id: int
    parent: int | None
    sequence: int
    operation: SnapshotOperation
    added_rows: int = 0
    added_bytes: int = 0
    total_rows: int = 0
    total_bytes: int = 0
    removes: bool = False
    incomplete: bool = False
    restart: str | None = None
    committed_at: int = 0
    schema_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogFacts:
    """A changelog and the snapshots that lead to its head, oldest first.

    ``snapshots`` begins at the snapshot that was merged last, if that is still there, else at the
    oldest one kept. ``retention_of`` has, for a delete snapshot, the highest data sequence number
    of the files it removed, -1 if there were none; one that deleted single rows is not in it.
    ``schemas`` has the schemas that snapshots were written with, by id, for a full read.
    ``trimmed`` is the highest data sequence number that retention has removed. ``mirrors`` are the
    ones that it knows to merge from it; None if another program writes it, and it is only read.
    """

    name: TableName
    uuid: str
    schema: Schema
    snapshots: tuple[SnapshotLine, ...] = ()
    retention_of: Mapping[int, int] = field(default_factory=dict)
    schemas: Mapping[int, Schema] = field(default_factory=dict)
    trimmed: int | None = None
    mirrors: frozenset[str] | None = None

    def schema_at(self, snapshot: SnapshotLine) -> Schema:
        """The schema that the table has for who reads it as of this snapshot."""
        if snapshot.schema_id is None:
            return self.schema
        return self.schemas.get(snapshot.schema_id, self.schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorFacts:
    """A mirror at the moment it was loaded; ``columns`` is the text of ``frazil.columns``.

    ``order`` and ``default_sequence`` are those of ``frazil.order`` and ``frazil.order-floor``.
    ``problem`` says why the marker cannot be trusted; ``marker`` is then what is written there, if
    that can be read at all, and ``marker_text`` always.
    """

    name: TableName
    uuid: str
    schema: Schema
    spec: PartitionSpec
    sort_order: SortOrder
    format_version: int
    last_column_id: int
    head: int | None
    marker: Marker | None
    columns: str | None
    total_rows: int
    order: str | None = None
    default_sequence: str | None = None
    marker_text: str | None = None
    problem: FrazilError | None = None


def trimmed_through(properties: Mapping[str, str]) -> int | None:
    """The highest data sequence number that retention has removed; None if it never has."""
    text = properties.get(TRIMMED_PROPERTY, "")
    return int(text) if text.isdecimal() else None
