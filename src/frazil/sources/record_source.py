"""Offsets of a source's records, for ``frazil verify`` of tables that have a row for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from frazil.model.marker import Position
    from frazil.sources.protocol import Split


class OffsetReader(Protocol):
    """Reads splits in tasks: picklable, light, and without a connection."""

    def read(self, split: Split) -> Iterator[tuple[int, pa.Array]]:
        """Numbers of partitions, each with offsets of records, 64 bits; what is damaged has none.

        Raises what keeps the split from being read.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordOffsets:
    """All records of one table that the source still has before a position.

    ``partitions`` are the names of the partitions, as positions have them, by the number that rows
    have. ``begins`` is the first offset of each that the source still has: rows before it cannot be
    compared. ``columns`` of the table have partition and offset, which the two expressions take
    out of a row that is ``counted``: of several rows of one record, one is. With ``is_sparse`` the
    source lacks offsets in between, so that only the rows of those are compared that it has.
    ``remedy`` is what to do about missing rows, if the table is not to be captured again.
    """

    reader: OffsetReader
    splits: tuple[Split, ...]
    partitions: Mapping[int, str]
    begins: Mapping[int, int]
    columns: tuple[str, ...]
    partition_sql: str
    offset_sql: str
    counted_sql: str = "true"
    is_sparse: bool = False
    remedy: str = ""


class RecordSource(Protocol):
    """A source whose records have offsets, in partitions if it has any."""

    def has(self, table: str) -> bool:
        """Whether this table has a row for each record."""

    def until_now(self) -> RecordSource:
        """The same source without what is captured later; called before the table is looked at."""

    def offsets_of(self, table: str, until: Position) -> RecordOffsets:
        """The records of a table before the position of its marker."""
