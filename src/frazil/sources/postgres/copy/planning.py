"""How a table is copied: in which pieces, and with which query each of them is read.

A piece is a range of pages. The first and the last one are open-ended: how many pages a table has
is known only about, and rows in pages that came later belong to the last piece.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.model.postgres.names import quote_identifier, quote_literal

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from frazil.model.postgres.names import QualifiedName
    from frazil.model.postgres.types import ColumnPlan


@dataclass(frozen=True, slots=True)
class CopyColumn:
    """A column that is copied, under its name at the source."""

    number: int
    name: str
    plan: ColumnPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTable:
    """A table that is copied as of one moment; of a partitioned one, this is the root.

    ``key`` are numbers of columns. ``row_filter`` is SQL as the publication has it. The last three
    are the same in every row and say where it comes from; ``committed_at`` counts microseconds
    since 1970.
    """

    name: str
    columns: tuple[CopyColumn, ...]
    key: tuple[int, ...]
    row_filter: str | None
    position: int
    origin: str
    committed_at: int | None = None


@dataclass(frozen=True, slots=True)
class PageRange:
    """Pages from ``first`` up to but without ``past``; None is open-ended."""

    first: int | None
    past: int | None


@dataclass(frozen=True, slots=True)
class CopySplit:
    """Pages of one relation: of the table itself, or of a partition that has no partitions."""

    table: str
    relation: QualifiedName
    first_page: int | None
    past_page: int | None


def plan_ranges(pages: int, *, target_pages: int) -> tuple[PageRange, ...]:
    """Ranges of equal size, none larger than the target; every page, also a later one, is in one.

    A table that is said to be empty has one range.
    """
    count = max(1, -(-pages // target_pages))
    edges = [number * pages // count for number in range(1, count)]
    return tuple(
        PageRange(first, past) for first, past in zip([None, *edges], [*edges, None], strict=True)
    )


def key_condition(names: Sequence[str], keys: Sequence[Sequence[str]]) -> str:
    """That a row has one of these keys, given as the server prints or reads them."""
    columns = ", ".join(map(quote_identifier, names))
    # Constants without a type take that of the column they are compared with.
    rows = ", ".join(f"({', '.join(map(quote_literal, key))})" for key in keys)
    return f"({columns}) in ({rows})"


def columns_query(table: CopyTable, split: CopySplit) -> str:
    """A query without rows, whose answer has the columns as they are at the source now."""
    names = ", ".join(quote_identifier(each.name) for each in table.columns)
    return f"select {names} from only {split.relation.quoted} limit 0"  # noqa: S608 - names are quoted


def copy_query(table: CopyTable, split: CopySplit, *, printed: Collection[int] = ()) -> str:
    """The rows of a split; columns with the numbers ``printed`` come as text.

    ONLY leaves out the rows of tables that inherit from this one: those are not its own.
    """
    wanted = ", ".join(
        _printed(each.name) if each.number in printed else quote_identifier(each.name)
        for each in table.columns
    )
    conditions = " and ".join(_conditions(table, split))
    where = f" where {conditions}" if conditions else ""
    return f"select {wanted} from only {split.relation.quoted}{where}"  # noqa: S608 - as above


def _printed(name: str) -> str:
    """What the type's output function prints, as COPY does in its text form.

    A cast to text is not the same: it shortens char(n) and lengthens inet. And a row of NULLs is
    not NULL, though ``is not null`` denies that.
    """
    column = quote_identifier(name)
    return f"case when {column} is distinct from null then pg_catalog.format('%s', {column}) end"


def _conditions(table: CopyTable, split: CopySplit) -> list[str]:
    conditions = []
    if split.first_page is not None:
        conditions.append(f"ctid >= '({split.first_page},0)'::pg_catalog.tid")
    if split.past_page is not None:
        conditions.append(f"ctid < '({split.past_page},0)'::pg_catalog.tid")
    if table.row_filter is not None:
        conditions.append(f"({table.row_filter})")
    return conditions
