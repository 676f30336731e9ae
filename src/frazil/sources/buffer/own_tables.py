"""Our tables next to the buffer's: made when they are first needed, removed by a teardown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from frazil.model.postgres.names import quote_identifier
from frazil.sources.buffer.claim_tables import claim_table_statements

if TYPE_CHECKING:
    from frazil.clients.postgres.session import Session
    from frazil.sources.buffer.relations import BufferRelations

# Two sessions that make the same object at a time would fail: they wait for each other instead.
_LOCK_KEY: Final = 0x6672617A696C6275
_LOCK: Final = "select pg_advisory_xact_lock(%(key)s)"
_DOING: Final = "making the tables of frazil in the buffer database"


def ensure_own_tables(session: Session, relations: BufferRelations) -> None:
    """Make what is not there."""
    with session.transaction():
        session.execute(_LOCK, {"key": _LOCK_KEY}, doing=_DOING)
        for statement in own_table_statements(relations):
            session.execute(statement, doing=_DOING)


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
