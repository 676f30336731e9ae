"""The tables of a buffer database as its writer makes them, and events in them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.support.postgres.access import Database

SCHEMA = "philotes"
EVENTS = f"""
create table {SCHEMA}.cdc_events (
    id bigserial primary key,
    source_id text not null,
    schema_name text not null,
    table_name text not null,
    operation text not null check (operation in ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE')),
    lsn text not null,
    transaction_id bigint,
    key_columns jsonb,
    before_data jsonb,
    after_data jsonb,
    metadata jsonb,
    event_time timestamptz not null,
    created_at timestamptz not null default now(),
    processed_at timestamptz
)
"""
LETTERS = f"""
create table {SCHEMA}.dead_letter_events (
    id bigserial primary key,
    original_event_id bigint,
    source_id text not null,
    schema_name text not null,
    table_name text not null,
    operation text not null,
    event_data jsonb not null,
    error_message text not null,
    error_type text,
    retry_count int default 0,
    created_at timestamptz default now(),
    last_retry_at timestamptz,
    expires_at timestamptz
)
"""
INDEXES = (
    f"create index on {SCHEMA}.cdc_events (source_id, created_at) where processed_at is null",
    f"create index on {SCHEMA}.cdc_events (processed_at) where processed_at is not null",
    f"create index on {SCHEMA}.cdc_events (source_id, schema_name, table_name)",
    f"create index on {SCHEMA}.cdc_events (source_id, lsn)",
    f"create index on {SCHEMA}.dead_letter_events (source_id)",
    f"create index on {SCHEMA}.dead_letter_events (created_at)",
    f"create index on {SCHEMA}.dead_letter_events (expires_at) where expires_at is not null",
    f"create index on {SCHEMA}.dead_letter_events (schema_name, table_name)",
    f"create index on {SCHEMA}.dead_letter_events (original_event_id)",
)
STATEMENTS = (f"create schema {SCHEMA}", EVENTS, LETTERS, *INDEXES)


@dataclass(frozen=True)
class Buffer:
    """A buffer database, and those who write into it."""

    database: Database

    def make(self) -> None:
        self.database.run(*STATEMENTS)

    def empty(self) -> None:
        self.database.run(
            f"truncate {SCHEMA}.cdc_events, {SCHEMA}.dead_letter_events restart identity",
            "drop schema if exists frazil_buffer cascade",
        )

    def add(
        self,
        count: int = 1,
        *,
        source_id: str = "shop",
        table: str = "orders",
        after: dict[str, Any] | None = None,
        processed: str = "null",
    ) -> None:
        """Events of one table; ``processed`` is an expression."""
        data = json.dumps({"id": 1, "note": "a secret value"} if after is None else after)
        self.database.run(
            f"""insert into {SCHEMA}.cdc_events (
                source_id, schema_name, table_name, operation, lsn, transaction_id, key_columns,
                after_data, event_time, processed_at
            ) select '{source_id}', 'public', '{table}', 'INSERT', '0/' || to_hex(n), n, '["id"]',
                '{data}', timestamptz '2026-01-02 03:04:05.000006Z' + n * interval '1 s',
                {processed}
            from generate_series(1, {count}) as n"""
        )

    def ask(self, query: str) -> Any:
        return self.database.ask(query)

    def events(self, where: str = "true") -> int:
        found = self.ask(f"select count(*) from {SCHEMA}.cdc_events where {where}")
        assert isinstance(found, int)
        return found

    def letters(self, where: str = "true") -> int:
        found = self.ask(f"select count(*) from {SCHEMA}.dead_letter_events where {where}")
        assert isinstance(found, int)
        return found

    def rows(self, query: str) -> list[Any]:
        """The rows of a query as JSON gives them."""
        found = self.ask(f"select coalesce(json_agg(row), '[]') from ({query}) as row")
        assert isinstance(found, list)
        return found
