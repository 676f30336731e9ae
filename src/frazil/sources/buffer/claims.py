"""Batches of pending events: claimed once, the same for ever, and processed when acknowledged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frazil.clients.postgres.session import Session
    from frazil.sources.buffer.relations import BufferRelations
    from frazil.sources.buffer.settings import TableChoice
    from frazil.sources.protocol import Limit

# Jumps from one source to the next along the index of pending events.
_PENDING_SOURCES: Final = """
    with recursive pending as (
        (select source_id from {events} where processed_at is null order by source_id limit 1)
        union all
        select (
            select event.source_id from {events} as event
            where event.processed_at is null and event.source_id > pending.source_id
            order by event.source_id limit 1
        )
        from pending where pending.source_id is not null
    )
    select source_id from pending where source_id is not null
"""
# Events that another batch has, of whichever pipeline: a search in one sorted value.
_TAKEN: Final = """
    coalesce((
        select range_agg(int8range(run.first_id, run.last_id, '[]'))
        from {claimed_tables} as claimed
        cross join lateral unnest(claimed.first_ids, claimed.last_ids) as run (first_id, last_id)
    ) @> event.id, false)
"""
_CHOSEN: Final = """
    and (event.schema_name || '.' || event.table_name) ~ %(include)s
    and (event.schema_name || '.' || event.table_name) !~ %(exclude)s
"""
_NUMBER: Final = """
    update {pipelines} set last_batch = nextval(%(numbers)s::regclass)
    where pipeline = %(pipeline)s returning last_batch
"""
_CLAIM: Final = """
    with picked as materialized (
        select event.*
        from unnest(%(sources)s::text[]) as wanted (source_id)
        cross join lateral (
            select event.id, event.source_id, event.schema_name, event.table_name,
                event.created_at,
                coalesce(pg_column_size(event.before_data), 0)
                    + coalesce(pg_column_size(event.after_data), 0)
                    + coalesce(pg_column_size(event.key_columns), 0) + {row_bytes} as size
            from {events} as event
            where event.source_id = wanted.source_id and event.processed_at is null
                and not {taken} {chosen}
            order by event.created_at, event.id limit %(rows)s
        ) as event
    ), counted as (
        select picked.*, row_number() over oldest as place, sum(size) over oldest as total
        from picked window oldest as (order by created_at, id rows unbounded preceding)
    ), placed as (
        select counted.*, id - row_number() over (
            partition by source_id, schema_name, table_name order by id
        ) as run
        from counted where place <= %(rows)s and total - size < %(bytes)s
    ), runs as (
        select source_id, schema_name, table_name, count(*) as events, sum(size) as bytes,
            min(id) as first_id, max(id) as last_id
        from placed group by source_id, schema_name, table_name, run
    )
    insert into {claimed_tables}
    select %(pipeline)s, %(batch)s, source_id, schema_name, table_name, sum(events), sum(bytes),
        array_agg(first_id order by first_id), array_agg(last_id order by first_id)
    from runs group by source_id, schema_name, table_name
    returning events, bytes
"""
_SEE: Final = """
    insert into {seen_tables} (pipeline, schema_name, table_name, source_id)
    select distinct on (schema_name, table_name) pipeline, schema_name, table_name, source_id
    from {claimed_tables}
    where pipeline = %(pipeline)s and batch = %(batch)s
    order by schema_name, table_name, source_id
    on conflict do nothing
    returning schema_name || '.' || table_name
"""
_OPEN: Final = """
    select batch, source_id, schema_name, table_name, events, bytes,
        first_ids[1], last_ids[cardinality(last_ids)]
    from {claimed_tables}
    where pipeline = %(pipeline)s and batch > %(after)s
    order by batch, schema_name, table_name, source_id
"""
# By single ids: a join by ranges may be turned round, and go through all events there are.
_MARK: Final = """
    update {events} as event set processed_at = now()
    from {claims} as claim
    where claim.pipeline = %(pipeline)s and claim.batch <= %(batch)s
        and event.id = claim.event_id and event.processed_at is null
"""
_FORGET: Final = """
    delete from {claimed_tables} where pipeline = %(pipeline)s and batch <= %(batch)s
"""
_ACKNOWLEDGE: Final = """
    update {pipelines} set acknowledged = greatest(acknowledged, %(batch)s)
    where pipeline = %(pipeline)s
"""
_ENOUGH: Final = """
    select true from {events} as event
    where event.source_id = any(%(sources)s) and event.processed_at is null
        and not {taken} {chosen}
    offset %(rows)s - 1 limit 1
"""
# What an event takes in addition to its documents.
_ROW_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class ClaimedTable:
    """The events of one table in one batch; ``first_id`` and ``last_id`` enclose their ids."""

    batch: int
    source_id: str
    schema: str
    name: str
    events: int
    bytes: int
    first_id: int
    last_id: int

    @property
    def table(self) -> str:
        """The table's name at the source."""
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True)
class NewClaim:
    """A batch that was claimed; ``new_tables`` were not met before.

    ``is_full`` says that there may be more.
    """

    batch: int
    new_tables: frozenset[str]
    is_full: bool


class _Number(NamedTuple):
    value: int


class _Text(NamedTuple):
    value: str


class _Taken(NamedTuple):
    events: int
    bytes: int


class _Found(NamedTuple):
    found: bool


@dataclass(frozen=True)
class Claims:
    """The batches of one pipeline; statements are of whichever session is given."""

    relations: BufferRelations
    pipeline: str
    choice: TableChoice

    def pending_sources(self, session: Session) -> list[str]:
        """Sources that have pending events, whoever has claimed them."""
        found = session.load(_Text, self._named(_PENDING_SOURCES), doing="looking for events")
        return [each.value for each in found]

    def claim(self, session: Session, sources: Sequence[str], limit: Limit) -> NewClaim | None:
        """Claim the oldest pending events of these sources; None when there are none.

        One transaction: a process that dies has claimed all of them, or nothing.
        """
        if not sources or not self.has_pending(session, sources):
            return None
        doing = "claiming events"
        rows = max(1, limit.rows // len(sources))
        with session.transaction():
            parameters = self._parameters(numbers=self.relations.batch_numbers)
            (number,) = session.load(_Number, self._named(_NUMBER), parameters, doing=doing)
            parameters = self._parameters(
                sources=list(sources), rows=rows, bytes=limit.bytes, batch=number.value
            )
            taken = session.load(_Taken, self._named(_CLAIM), parameters, doing=doing)
            seen = session.load(_Text, self._named(_SEE), parameters, doing=doing)
        is_full = (
            sum(each.events for each in taken) >= rows
            or sum(each.bytes for each in taken) >= limit.bytes
        )
        return NewClaim(number.value, frozenset(each.value for each in seen), is_full)

    def has_pending(self, session: Session, sources: Sequence[str], rows: int = 1) -> bool:
        """Whether at least so many events of these sources could be claimed."""
        parameters = self._parameters(sources=list(sources), rows=rows)
        query = self._named(_ENOUGH)
        return bool(session.load(_Found, query, parameters, doing="looking for events"))

    def load_open(self, session: Session, after: int) -> list[ClaimedTable]:
        """What batches behind this one have, which is not acknowledged."""
        parameters = self._parameters(after=after)
        return session.load(ClaimedTable, self._named(_OPEN), parameters, doing="reading claims")

    def acknowledge(self, session: Session, batch: int) -> None:
        """The events of all batches up to this one are processed; may be repeated."""
        parameters, doing = self._parameters(batch=batch), "marking events as processed"
        with session.transaction():
            for statement in (_MARK, _FORGET, _ACKNOWLEDGE):
                session.execute(self._named(statement), parameters, doing=doing)

    def _named(self, statement: str) -> str:
        relations = self.relations
        names = {
            "events": relations.events,
            "claims": relations.claims,
            "claimed_tables": relations.claimed_tables,
            "seen_tables": relations.seen_tables,
            "pipelines": relations.pipelines,
            "row_bytes": _ROW_BYTES,
        }
        taken = _TAKEN.format(**names)
        return statement.format(**names, taken=taken, chosen="" if self.choice.is_all else _CHOSEN)

    def _parameters(self, **given: object) -> dict[str, object]:
        choice = self.choice
        return {
            "pipeline": self.pipeline,
            "include": choice.include_pattern,
            "exclude": choice.exclude_pattern,
            **given,
        }
