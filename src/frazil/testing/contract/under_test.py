"""What a source must offer to be put under the contract: a writer next to it, and little else.

All changes of the contract are in tables of the schema ``shop``; the source is configured to want
all of them, be they there or not, and none of any other schema. Columns are long, int or string.
The changes are those of the in-memory database; what a source does not know, it may do in its own
way (Postgres does not send large values that stay, whatever ``unsent`` says).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from frazil.model.schema.types import Default, Primitive
    from frazil.sources.protocol import Source
    from frazil.testing.in_memory_database import Change


class SourceUnderTest(Protocol):
    """Where changes come from, with a writer; the writer may be a thread.

    Sources without a feature leave out the classes of the contract that need it.
    """

    @property
    def has_keys(self) -> bool:
        """Whether tables have keys; without them ``key`` is never given and rows are only added."""

    @property
    def has_copies(self) -> bool:
        """Whether a table is captured by a copy first; without, it begins live."""

    def open(self) -> Source:
        """A source, as a process has it after its start; the one before is closed by then."""

    def add_table(
        self, name: str, columns: Mapping[str, Primitive], key: Sequence[str] = ()
    ) -> None:
        """Create a table."""

    def transact(self, *changes: Change) -> None:
        """Commit these changes together, in this order; where there are no transactions, singly."""

    def contents(self, table: str) -> list[dict[str, object]]:
        """The rows that are there now, by the names of their columns."""


class AlterableSource(SourceUnderTest, Protocol):
    """One whose tables come, go and change."""

    def drop_table(self, name: str) -> None:
        """Remove a table."""

    def add_column(
        self, table: str, name: str, type_: Primitive, default: Default | None = None
    ) -> None:
        """Add a column; rows that are there show the default."""

    def drop_column(self, table: str, name: str) -> None:
        """Remove a column."""

    def rename_column(self, table: str, name: str, new_name: str) -> None:
        """Give a column another name."""

    def widen(self, table: str, name: str, type_: Primitive) -> None:
        """Give a column a wider type."""


class RejectingSource(SourceUnderTest, Protocol):
    """One that may hold records which are no rows."""

    def reject(self, table: str, payload: bytes) -> None:
        """Commit a record of this table that the source rejects."""


class LayoutSource(SourceUnderTest, Protocol):
    """One that says what tables of the lake have next to its columns."""

    def add_records_table(self, name: str, columns: Mapping[str, Primitive]) -> None:
        """Create a table of records: all columns are required, and none of ours is wanted."""


class SpoilableSource(SourceUnderTest, Protocol):
    """One that may hold what cannot be read."""

    def spoil(self, table: str) -> None:
        """Commit a change of this table that the source refuses to read."""
