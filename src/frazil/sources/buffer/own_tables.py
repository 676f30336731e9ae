"""Our tables next to the buffer's: made when they are first needed, removed by a teardown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from frazil.model.postgres.names import quote_identifier
from frazil.sources.buffer.claim_tables import claim_table_statements

if TYPE_CHECKING:
    from frazil.clients.postgres.session import Session
    from frazil.sources.buffer.relations import BufferRelations

# Two sessions that make the same object at a time would fail: they wait for each other instead.
_LOCK_KEY: Final = 0x6672617A696C6275
_LOCK: Final = "select pg_advisory_xact_lock(%(key)s)"
_DOING: Final = "making the tables of frazil in the buffer database"


# All of them are made in one transaction: where one is missing, an older version made the others.
_THERE: Final = """
    select to_regnamespace(%(schema)s) is not null, coalesce(
        bool_and(to_regclass(name) is not null), false
    ) from unnest(%(names)s::text[]) as name
"""


class _There(NamedTuple):
    schema: bool
    tables: bool


def ensure_own_tables(session: Session, relations: BufferRelations) -> None:
    """Make what is not there; where all of it is, a role needs no right to make anything."""
    if _load_there(session, relations).tables:
        return
    with session.transaction():
        session.execute(_LOCK, {"key": _LOCK_KEY}, doing=_DOING)
        # The server refuses to make a schema that is there, to a role that may not make any.
        schema, *tables = own_table_statements(relations)
        is_there = _load_there(session, relations).schema
        for statement in tables if is_there else [schema, *tables]:
            session.execute(statement, doing=_DOING)


def _load_there(session: Session, relations: BufferRelations) -> _There:
    names = {
        "schema": quote_identifier(relations.own_schema),
        "names": [
            relations.undecided,
            relations.backpressure,
            relations.batch_numbers,
            relations.pipelines,
            relations.seen_tables,
            relations.claimed_batches,
            relations.claimed_tables,
            relations.claims,
        ],
    }
    (there,) = session.load(_There, _THERE, names, doing=_DOING)
    return there


def own_table_statements(relations: BufferRelations) -> tuple[str, ...]:
    """The statements that make them."""
    return (
        f"create schema if not exists {quote_identifier(relations.own_schema)}",
        f"""create table if not exists {relations.undecided} (
            event_id bigint primary key
        )""",
        f"""create table if not exists {relations.backpressure} (
            pipeline text primary key,
            source_ids text[] not null,
            state text not null check (state in ('running', 'paused')),
            pending bigint not null,
            high bigint not null,
            low bigint not null,
            changed_at timestamptz not null,
            checked_at timestamptz not null
        )""",
        *claim_table_statements(relations),
    )
