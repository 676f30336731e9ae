"""Our tables about claims: what a batch has, and how far each pipeline is.

The events of a batch are named by their ids, never by a range of them: ids commit out of order, and
a lower one that appears later belongs to a later batch. Ids that follow each other without a gap
are one run, whatever tables they are of, so that an ordinary batch takes a few bytes and is read
and marked in the order that its events lie in. An open batch has the events of the tables that are
listed with it, and of no others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from frazil.sources.buffer.relations import BufferRelations


def claim_table_statements(relations: BufferRelations) -> tuple[str, ...]:
    """The statements that make them; their schema is there."""
    return (
        f"create sequence if not exists {relations.batch_numbers}",
        f"""create table if not exists {relations.pipelines} (
            pipeline text primary key,
            identity uuid not null default gen_random_uuid(),
            last_batch bigint not null default 0,
            acknowledged bigint not null default 0
        )""",
        f"""create table if not exists {relations.seen_tables} (
            pipeline text not null,
            schema_name text not null,
            table_name text not null,
            source_id text not null,
            seen_at timestamptz not null default now(),
            primary key (pipeline, schema_name, table_name)
        )""",
        f"""create table if not exists {relations.claimed_batches} (
            pipeline text not null,
            batch bigint not null,
            ids int8multirange not null,
            primary key (pipeline, batch)
        )""",
        f"""create table if not exists {relations.claimed_tables} (
            pipeline text not null,
            batch bigint not null,
            source_id text not null,
            schema_name text not null,
            table_name text not null,
            events bigint not null,
            bytes bigint not null,
            first_id bigint not null,
            last_id bigint not null,
            primary key (pipeline, batch, source_id, schema_name, table_name)
        )""",
        f"""create or replace view {relations.claims} as
            select claimed.pipeline, claimed.batch, event_id
            from {relations.claimed_batches} as claimed
            cross join lateral unnest(claimed.ids) as run (ids)
            cross join lateral generate_series(lower(run.ids), upper(run.ids) - 1) as event_id
        """,  # noqa: S608 - names are quoted
    )
