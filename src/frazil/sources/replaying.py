"""What a source with records offers to replay dead letters: they are read again as they are now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

from frazil.model.records.rejected_record import RejectedRecord
from frazil.sources.protocol import TableRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frazil.model.marker import Position
    from frazil.model.source_table import SourceTable

ReplayedReading: TypeAlias = TableRows | RejectedRecord


class RecordReplayer(Protocol):
    """Reads records of dead letters again, with today's settings; lives on the driver."""

    @property
    def identity(self) -> str:
        """The identity of the source: letters of another one are not read."""

    def has(self, table: str) -> bool:
        """Whether the source still has a table of this name."""

    def table(self, name: str, shape: str) -> SourceTable:
        """The table as its settings want it now; ``shape`` is what it had with its last rows."""

    def has_passed(self, record: RejectedRecord, position: Position) -> bool:
        """Whether no batch will bring this record to a table that is at this position.

        Otherwise the record is not replayed: its row would come twice.
        """

    def read(
        self, table: SourceTable, records: Sequence[RejectedRecord]
    ) -> Sequence[ReplayedReading]:
        """Of each record of this table, in their order, what it is now: rows, or still none.

        A record whose settings leave it out has no rows. One whose payload is not enough to make
        exactly the row that it should have been stays rejected.
        """
