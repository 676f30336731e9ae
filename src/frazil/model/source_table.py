"""A table as its source offers it: columns that keep their numbers, and what distinguishes it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from frazil.model.schema.table_layout import CDC_LAYOUT, TableLayout

if TYPE_CHECKING:
    from frazil.errors import FrazilError
    from frazil.model.schema.types import Default, Type


class TableBegin(StrEnum):
    """How the capture of a table begins."""

    COPY = "copy"
    """With all rows that it has."""
    STREAM = "stream"
    """With the oldest change that the source keeps: its changelog appears with the first commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceColumn:
    """A column; its number stays with it for ever, its name, position and type do not.

    Numbers are given in the order of birth: a new column has a higher one than all before it.
    ``default`` is what rows older than the column show in it, in Iceberg's JSON form. ``rewrote``
    says that rows older than the column may show values that were never sent and that no default
    gives; it matters only when the column is added to existing rows. ``required`` says that every
    record has a value; rows of changes may lack it. The ids inside a nested type mean nothing here.
    """

    number: int
    name: str
    type: Type
    default: Default | None = None
    rewrote: bool = False
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTable:
    """A table; ``key`` are the numbers of its key columns, none if it cannot have a mirror.

    ``highest_number`` is the highest number that a column had by now, also one that is gone or
    that the source does not send.

    ``identity`` distinguishes it from another table that takes its name, and from itself after
    something happened that the source does not announce; it is compared, never read. ``shape`` is
    what the source gets back, to recognise the columns when they change.

    ``obstacle`` is why it cannot be read from its first row at the moment; a table that is being
    captured goes on nevertheless. One without an identity sends no changes at all. ``layout`` is
    what its table in the lake has next to these columns.
    """

    name: str
    identity: str
    shape: str
    columns: tuple[SourceColumn, ...]
    key: tuple[int, ...] = ()
    highest_number: int = 0
    obstacle: FrazilError | None = None
    layout: TableLayout = CDC_LAYOUT
    begins: TableBegin = TableBegin.COPY

    def column(self, number: int) -> SourceColumn:
        """The column with this number; KeyError for any other."""
        found = next((each for each in self.columns if each.number == number), None)
        if found is None:
            raise KeyError(number)
        return found
