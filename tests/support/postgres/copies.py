"""Tables copied through the public interface of the Postgres source, for tests."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa

from frazil.codec.pgtext.convert import SESSION_SETTINGS
from frazil.model.policy import OnUnrepresentable
from frazil.model.postgres.lsn import format_lsn
from frazil.model.postgres.names import QualifiedName
from frazil.model.postgres.types import plan_column
from frazil.sources.postgres.copy.planning import (
    CopyColumn,
    CopySplit,
    CopyTable,
    PageRange,
    plan_ranges,
)
from frazil.sources.postgres.copy.reader import CopyReader
from frazil.sources.postgres.copy.round import CopySnapshot, open_copy_snapshot
from frazil.sources.protocol import Split, TableFailure, TableRows
from tests.support.postgres.catalog import column_type

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from frazil.errors import FrazilError
    from frazil.sources.protocol import Reading
    from tests.support.postgres.access import Database, Secret

_COLUMNS = """
select attnum, attname
from pg_attribute
where attrelid = %s::regclass and attnum > 0 and not attisdropped
order by attnum
"""
ALL_PAGES = (PageRange(None, None),)


@dataclass(frozen=True)
class Copying:
    """A copy of one table that has its snapshot, and can be read split by split."""

    database: Database
    snapshot: CopySnapshot
    table: CopyTable
    relation: QualifiedName
    dsn: Secret

    def reader(self) -> CopyReader:
        return CopyReader(self.dsn, self.snapshot.snapshot, (self.table,))

    def read(
        self, pages: PageRange = ALL_PAGES[0], *, leaf: QualifiedName | None = None
    ) -> Iterator[Reading]:
        piece = CopySplit(self.table.name, leaf or self.relation, pages.first, pages.past)
        return self.reader().read(Split(piece, 1))

    def rows(self, ranges: Sequence[PageRange] = ALL_PAGES) -> pa.Table:
        """All rows of these ranges; there must be no problem."""
        batches = []
        for pages in ranges:
            for reading in self.read(pages):
                assert isinstance(reading, TableRows), reading
                assert reading.table == self.table.name
                batches.append(reading.rows)
        return pa.Table.from_batches(batches) if batches else pa.table({})

    def failure(self) -> FrazilError:
        """What the only reading says is wrong."""
        (reading,) = self.read()
        assert isinstance(reading, TableFailure)
        assert reading.table == self.table.name == reading.error.table
        return reading.error


@contextmanager
def copying(
    database: Database,
    name: str,
    *,
    columns: Sequence[str] | None = None,
    policy: OnUnrepresentable = OnUnrepresentable.FAIL,
    row_filter: str | None = None,
    dsn: Secret | None = None,
) -> Iterator[Copying]:
    """Take a snapshot for the copy of a table in the schema ``public``; its first column is key."""
    relation = QualifiedName("public", name)
    found = load_columns(database, relation, policy=policy, only=columns)
    with open_copy_snapshot(database.dsn, slot="copying") as snapshot:
        table = CopyTable(
            name=str(relation),
            columns=found,
            key=tuple(each.number for each in found[:1]),
            row_filter=row_filter,
            position=snapshot.consistent_point - 1,
            origin=format_lsn(snapshot.consistent_point),
        )
        yield Copying(database, snapshot, table, relation, dsn or database.dsn)


def load_columns(
    database: Database,
    relation: QualifiedName,
    *,
    policy: OnUnrepresentable = OnUnrepresentable.FAIL,
    only: Sequence[str] | None = None,
) -> tuple[CopyColumn, ...]:
    """The columns as the configuration would have them."""
    with pinned_to(database) as connection:
        return tuple(
            CopyColumn(
                number,
                name,
                plan_column(
                    name,
                    column_type(connection, relation.quoted, name),
                    on_unrepresentable=policy,
                ),
            )
            for number, name in connection.execute(_COLUMNS, (relation.quoted,)).fetchall()
            if only is None or name in only
        )


@contextmanager
def pinned_to(database: Database) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """A session that prints as ours do."""
    with psycopg.connect(database.dsn.value, autocommit=True, prepare_threshold=None) as connection:
        for name, value in SESSION_SETTINGS.items():
            connection.execute("select set_config(%s, %s, false)", (name, value))
        yield connection


def ranges_now(database: Database, name: str, *, target_pages: int) -> tuple[PageRange, ...]:
    """Ranges for as many pages as the table has at the moment."""
    pages = database.ask(f"select pg_relation_size('{name}') / current_setting('block_size')::int")
    assert isinstance(pages, int)
    return plan_ranges(pages, target_pages=target_pages)
