"""A Postgres database under the contract of sources."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import uuid4

import psycopg

from frazil.model.schema.types import Primitive
from frazil.sources.postgres.settings import PostgresSettings
from frazil.sources.postgres.source import PostgresSource
from frazil.sources.postgres.spool_files import SpoolFiles
from frazil.sources.postgres.tables.description import TableOptions
from frazil.testing.in_memory_database import DeleteRow, InsertRow, TruncateTable, UpdateRow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from frazil.model.schema.types import Default
    from frazil.testing.in_memory_database import Change
    from tests.support.postgres.access import Database

TYPES = {Primitive.LONG: "bigint", Primitive.INT: "integer", Primitive.STRING: "text"}


@dataclass
class PostgresSubject:
    """A database of its own, a slot of its own, and a hand that writes there."""

    database: Database
    folder: Path
    slot: str = field(default_factory=lambda: f"s_{uuid4().hex[:10]}")

    has_keys = True
    has_copies = True

    def __post_init__(self) -> None:
        self._keys: dict[str, tuple[str, ...]] = {}
        self._source: PostgresSource | None = None
        self.database.run("create schema shop", "create schema other")

    def open(self) -> PostgresSource:
        """A new process; the one before is gone, and its slot may be busy for a moment."""
        self.close()
        self._source = PostgresSource(self.settings)
        return self._source

    @property
    def settings(self) -> PostgresSettings:
        """What every process of this one is configured with."""
        return PostgresSettings(
            dsn=self.database.dsn,
            slot=self.slot,
            publication=self.slot,
            creates_publication=True,
            include=("shop.*",),
            exclude=(),
            spool=SpoolFiles(str(self.folder / self.slot)),
            spool_bytes=1 << 30,
            heartbeat_seconds=0.2,
            copy_connections=2,
            options=lambda _table: TableOptions(),
        )

    def close(self) -> None:
        if self._source is not None:
            self._source.close()
            with suppress(Exception):
                self._source.plan_copy(())
            self._source = None

    def add_table(
        self, name: str, columns: Mapping[str, Primitive], key: Sequence[str] = ()
    ) -> None:
        listed = [f'"{column}" {TYPES[type_]}' for column, type_ in columns.items()]
        if key:
            listed.append(f"primary key ({', '.join(key)})")
        self._keys[name] = tuple(key)
        self.database.run(f"create table {name} ({', '.join(listed)})")

    def drop_table(self, name: str) -> None:
        self.database.run(f"drop table {name}")

    def transact(self, *changes: Change) -> None:
        with psycopg.connect(self.database.dsn.value) as connection:
            for change in changes:
                statement, values = self._statement(change)
                connection.execute(statement.encode(), values)

    def contents(self, table: str) -> list[dict[str, object]]:
        with psycopg.connect(self.database.dsn.value) as connection:
            cursor = connection.execute(f"select * from {table}".encode())
            names = [each.name for each in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor]

    def add_column(
        self, table: str, name: str, type_: Primitive, default: Default | None = None
    ) -> None:
        given = "" if default is None else f" default {_literal(default)}"
        self.database.run(
            f'alter table {table} add column "{name}" {TYPES[type_]}{given}',
            # Only rows that are there show it: a row that does not name the column has null in it.
            f'alter table {table} alter column "{name}" drop default',
        )

    def drop_column(self, table: str, name: str) -> None:
        self.database.run(f'alter table {table} drop column "{name}"')

    def rename_column(self, table: str, name: str, new_name: str) -> None:
        self.database.run(f'alter table {table} rename column "{name}" to "{new_name}"')

    def widen(self, table: str, name: str, type_: Primitive) -> None:
        self.database.run(f'alter table {table} alter column "{name}" type {TYPES[type_]}')

    def spoil(self, table: str) -> None:
        """A value that no date of Iceberg's can be, in a column that was there before."""
        self.database.run(
            f"alter table {table} add column spoilt date",
            f"insert into {table} (id, spoilt) values (-1, 'infinity')",
        )

    def _statement(self, change: Change) -> tuple[str, list[object]]:
        match change:
            case InsertRow(table, values):
                names = ", ".join(f'"{each}"' for each in values)
                marks = ", ".join("%s" for _ in values)
                return f"insert into {table} ({names}) values ({marks})", list(values.values())
            case UpdateRow(table, key, values):
                changed = ", ".join(f'"{each}" = %s' for each in values)
                found, where = self._where(table, key)
                return f"update {table} set {changed} where {where}", [*values.values(), *found]
            case DeleteRow(table, key):
                found, where = self._where(table, key)
                return f"delete from {table} where {where}", found
            case TruncateTable(tables):
                return f"truncate {', '.join(tables)}", []
            case _:
                raise TypeError(change)

    def _where(self, table: str, key: tuple[object, ...]) -> tuple[list[object], str]:
        names = self._keys[table]
        return list(key), " and ".join(f'"{name}" = %s' for name in names)


def _literal(value: Default) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)
