"""What a source with records offers to replay dead letters: they are read again as they are now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

from frazil.model.rejected_record import RejectedRecord
from frazil.sources.protocol import TableRows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from frazil.model.marker import Position
    from frazil.model.source_table import SourceTable

ReplayedReading: TypeAlias = TableRows | RejectedRecord


class RecordReplayer(Protocol):
    """Reads records of dead letters again, with today's settings; lives on the driver."""

    @property
    def identity(self) -> str:
        """The identity of the source: letters of another one are not read."""

    def tables(self) -> Mapping[str, SourceTable]:
        """The tables as they are now, by the names that letters have."""

    def has_passed(self, record: RejectedRecord, position: Position) -> bool:
        """Whether no batch will bring this record to a table that is at this position.

        Otherwise the record is not replayed: its row would come twice.
        """

    def read(self, records: Sequence[RejectedRecord]) -> Sequence[ReplayedReading]:
        """Of each record, in their order, what it is now: rows, or a record that is still none.

        A record whose settings leave it out has no rows. One whose payload is not enough to make
        exactly the row that it should have been stays rejected.
        """
