"""Offsets of a source's records, for ``frazil verify`` of tables that have a row for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

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
    have in ``partition_column``. ``begins`` is the first offset of each that the source still has:
    rows before it cannot be compared.
    """

    reader: OffsetReader
    splits: tuple[Split, ...]
    partitions: Mapping[int, str]
    begins: Mapping[int, int]
    partition_column: str
    offset_column: str


class RecordSource(Protocol):
    """A source whose records have offsets in partitions."""

    def has(self, table: str) -> bool:
        """Whether this table has a row for each record."""

    def offsets_of(self, table: str, until: Mapping[str, int]) -> RecordOffsets:
        """The records of a table before the offsets of its marker."""
