"""A segment of the spool: what is known without opening it, and how a task reads it.

The changes of a table are read alike, whatever shapes it had.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from frazil.codec.pgoutput.messages import Relation
    from frazil.model.postgres.types import ColumnPlan
    from frazil.model.source_table import SourceColumn


# A tuple, because one is made for every transaction.
class OpenTransaction(NamedTuple):
    """What its Begin said; times count microseconds from the year 2000."""

    final_lsn: int
    committed_at: int
    xid: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A file of messages: of complete transactions, or of a part of one that is large.

    Every table is described in it before its first row or truncation. Crosses to tasks.
    """

    name: str
    size: int
    messages: int
    rows: int
    """Messages that change a row or truncate."""
    oids: frozenset[int]
    """The tables that those are about."""
    relations: tuple[Relation, ...]
    """What describes tables in it, in that order; the server and we may repeat one."""
    xids: tuple[int, ...] = ()
    """The transaction that each of these first came in, zero if it came outside of any."""
    opens: OpenTransaction | None = None
    """The transaction that its first messages belong to, if they are not that one's first."""
    begins_ordinals: Mapping[int, int] = field(default_factory=dict)
    """By table, a number above all ordinals that earlier segments of that transaction need: twice
    the messages there, as the change of a key makes two rows."""
    first_final_lsn: int
    last_final_lsn: int
    end_lsn: int | None
    """The position after its last transaction; None if that goes on in the next segment."""
    last_committed_at: int
    last_xid: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentPart:
    """A segment to be read in full; the payload of a split is a tuple of these.

    ``opens`` is the large transaction inside which it begins. ``begins_ordinals`` are, by the OID
    of a table, ordinals that no row of that transaction in an earlier segment reaches: an update
    may be two rows, so that counting messages is too few. A table that is not there begins at 0.
    """

    name: str
    opens: OpenTransaction | None = None
    begins_ordinals: Mapping[int, int] = field(default_factory=dict)


class SegmentFiles(Protocol):
    """Where segments lie; picklable, and at hand in every task."""

    def load(self, name: str) -> bytes | memoryview:
        """The bytes of a segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeReading:
    """A table while it had one shape: what the server said of it, and how its text is read.

    ``numbers`` and ``plans`` go along with the relation's columns. A plan's type is that of the
    column with this number in ``TableReading``, which may be wider than the shape's own.
    """

    relation: Relation
    numbers: tuple[int, ...]
    plans: tuple[ColumnPlan, ...]

    def __post_init__(self) -> None:
        widths = {len(self.numbers), len(self.plans), len(self.relation.columns)}
        if len(widths) != 1:
            message = f"a shape of {len(self.relation.columns)} columns has as many numbers, plans"
            raise ValueError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReading:
    """A table that is captured: its rows have exactly these columns, in whatever shape they came.

    A column that a shape lacks shows its default, or null; one that only a shape has is left out.
    ``key`` are column numbers, none for a table that is only appended to. Transactions that
    committed before ``after`` are in already and skipped.
    """

    name: str
    oid: int
    columns: tuple[SourceColumn, ...]
    key: tuple[int, ...]
    shapes: tuple[ShapeReading, ...]
    after: int
