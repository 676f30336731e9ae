"""A buffer database under the contract of sources: what a writer puts there for each change."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg

from frazil.config import Config, table_settings
from frazil.model.schema.types import Primitive
from frazil.sources.buffer.dead_letters import LetterPolicy
from frazil.sources.buffer.relations import BufferRelations
from frazil.sources.buffer.settings import BufferSettings, TableChoice
from frazil.sources.buffer.source import BufferSource
from frazil.testing.in_memory_database import DeleteRow, InsertRow, TruncateTable, UpdateRow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from frazil.testing.in_memory_database import Change
    from tests.support.postgres.access import Database

TYPES = {Primitive.LONG: "bigint", Primitive.INT: "integer", Primitive.STRING: "text"}
HISTORY = """
create table philotes.cdc_schema_history (
    id uuid primary key default gen_random_uuid(),
    source_id text not null, schema_name text not null, table_name text not null,
    version int not null, columns jsonb not null, captured_at timestamptz default now(), lsn text,
    unique (source_id, schema_name, table_name, version)
)
"""
INSERT = """
    insert into philotes.cdc_events (
        source_id, schema_name, table_name, operation, lsn, key_columns, before_data, after_data,
        event_time
    ) values (%s, %s, %s, %s, %s, %s, %s, %s, now())
"""
CONFIG = Config.model_validate(
    {
        "pipeline": "tests",
        "catalog": {"name": "lake", "kind": "rest", "uri": "http://localhost:1"},
        "source": {"kind": "buffer", "dsn": "postgresql://localhost/none"},
    }
)


@dataclass
class BufferSubject:
    """A buffer of its own, and a writer that tells of every change as the original does."""

    database: Database
    source_id: str = "shop-1"
    pipeline: str = field(default_factory=lambda: f"p{uuid4().hex[:8]}")

    has_keys = True
    has_copies = False

    def __post_init__(self) -> None:
        self._keys: dict[str, tuple[str, ...]] = {}
        self._rows: dict[str, dict[object, dict[str, object]]] = {}
        self._lsn = 0x0F
        self._source: BufferSource | None = None

    @property
    def settings(self) -> BufferSettings:
        return BufferSettings(
            dsn=self.database.dsn,
            pipeline=self.pipeline,
            relations=BufferRelations(),
            source_ids=(),
            choice=TableChoice(("shop.*",)),
            claim_rows=100_000,
            poll_seconds=0.05,
            letters=LetterPolicy(enabled=True, retention=timedelta(days=7)),
            tables=lambda name: table_settings(CONFIG, name),
        )

    def open(self) -> BufferSource:
        self.close()
        self._source = BufferSource(self.settings)
        return self._source

    def close(self) -> None:
        if self._source is not None:
            self._source.close()

    def add_table(
        self, name: str, columns: Mapping[str, Primitive], key: Sequence[str] = ()
    ) -> None:
        self._keys[name], self._rows[name] = tuple(key), {}
        listed = [
            {"name": each, "type": TYPES[type_], "primary_key": each in key}
            for each, type_ in columns.items()
        ]
        schema, _, table = name.partition(".")
        text = json.dumps(listed)
        self.database.run(
            "insert into philotes.cdc_schema_history (source_id, schema_name, table_name, version,"
            f" columns) values ('{self.source_id}', '{schema}', '{table}', 1, '{text}')"
        )

    def contents(self, table: str) -> list[dict[str, object]]:
        return list(self._rows[table].values())

    def transact(self, *changes: Change) -> None:
        with psycopg.connect(self.database.dsn.get_secret_value()) as connection:
            for change in changes:
                for event in self._events(change):
                    connection.execute(INSERT, event)

    def reject(self, table: str, payload: bytes) -> None:
        """An event whose key is no number; the payload is in it."""
        values: dict[str, object] = {
            "id": "no number",
            "note": payload.decode("latin-1").replace("\0", ""),
        }
        with psycopg.connect(self.database.dsn.get_secret_value()) as connection:
            connection.execute(INSERT, self._event(table, "INSERT", None, values))

    def write(
        self,
        table: str,
        operation: str,
        before: dict[str, object] | None,
        after: dict[str, object] | None,
    ) -> None:
        """An event as it is given, whatever the rows are."""
        with psycopg.connect(self.database.dsn.get_secret_value()) as connection:
            connection.execute(INSERT, self._event(table, operation, before, after))

    def marked(self) -> list[tuple[str, bool]]:
        """The tables that have processed events, and those that have pending ones."""
        found = self.database.ask(
            "select coalesce(json_agg(distinct jsonb_build_array(table_name, processed_at is not "
            "null)), '[]') from philotes.cdc_events"
        )
        assert isinstance(found, list)
        return sorted((name, is_marked) for name, is_marked in found)

    def _events(self, change: Change) -> list[tuple[Any, ...]]:
        match change:
            case InsertRow(table, values):
                key = self._key_of(table, values) or (len(self._rows[table]),)
                self._rows[table][key] = dict(values)
                return [self._event(table, "INSERT", None, dict(values))]
            case UpdateRow(table, key, values, unsent):
                before = self._rows[table].pop(key)
                after = {**before, **values}
                self._rows[table][self._key_of(table, after)] = after
                sent = {name: each for name, each in after.items() if name not in unsent}
                old = {name: before[name] for name in self._keys[table]}
                return [self._event(table, "UPDATE", old, sent)]
            case DeleteRow(table, key):
                self._rows[table].pop(key)
                old = dict(zip(self._keys[table], key, strict=True))
                return [self._event(table, "DELETE", old, None)]
            case TruncateTable(tables):
                for table in tables:
                    self._rows[table].clear()
                return [self._event(table, "TRUNCATE", None, None) for table in tables]
            case _:
                raise TypeError(change)

    def _event(
        self,
        table: str,
        operation: str,
        before: dict[str, object] | None,
        after: dict[str, object] | None,
    ) -> tuple[Any, ...]:
        schema, _, name = table.partition(".")
        self._lsn += 1
        documents = [
            None if each is None else json.dumps(each)
            for each in (list(self._keys.get(table, ())), before, after)
        ]
        return (self.source_id, schema, name, operation, f"0/{self._lsn:X}", *documents)

    def _key_of(self, table: str, values: Mapping[str, object]) -> tuple[object, ...]:
        return tuple(values[each] for each in self._keys[table])
