"""How the changes of one table are read, whatever shapes it had."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from frazil.codec.pgoutput.messages import Relation
    from frazil.model.postgres.types import ColumnPlan
    from frazil.model.source_table import SourceColumn


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
