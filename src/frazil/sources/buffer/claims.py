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
                and not {claimed} @> event.id {chosen}
            order by event.created_at, event.id limit %(rows)s
        ) as event
    ), counted as (
        select picked.*, row_number() over oldest as place, sum(size) over oldest as total
        from picked window oldest as (order by created_at, id rows unbounded preceding)
    ), placed as materialized (
        select id, source_id, schema_name, table_name, size
        from counted where place <= %(rows)s and total - size < %(bytes)s
    ), runs as (
        select int8range(min(id), max(id), '[]') as ids
        from (select id, id - row_number() over (order by id) as run from placed) as placed
        group by run
    ), claimed as (
        insert into {claimed_batches}
        select %(pipeline)s, %(batch)s, range_agg(ids) from runs having count(*) > 0
    )
    insert into {claimed_tables}
    select %(pipeline)s, %(batch)s, source_id, schema_name, table_name, count(*), sum(size),
        min(id), max(id)
    from placed group by source_id, schema_name, table_name
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
    select batch, source_id, schema_name, table_name, events, bytes, first_id, last_id
    from {claimed_tables}
    where pipeline = %(pipeline)s and batch > %(after)s
    order by batch, schema_name, table_name, source_id
"""
# Events are found by the index of their ids and then taken by their places: a join by ranges may be
# turned round, and go through all events there are. The source is set to what it is: for an index
# with no column that is set, the server looks at each full page for entries of versions that are
# dead, and those of this transaction are not. That was a fifth of what marking costs.
_MARK: Final = """
    update {events} set processed_at = now(), source_id = source_id
    where ctid = any(array(
        select event.ctid
        from {claimed_batches} as claimed
        cross join lateral unnest(claimed.ids) as run (ids)
        cross join lateral (
            select event.ctid from {events} as event
            where event.id >= lower(run.ids) and event.id < upper(run.ids)
                and event.processed_at is null {of_tables}
            offset 0
        ) as event
        where claimed.pipeline = %(pipeline)s {of_batches}
    )) and processed_at is null
"""
_SPAN: Final = """
    select coalesce(min(lower(ids)), 0), coalesce(max(upper(ids)), 0) from {claimed_batches}
    where pipeline = %(pipeline)s and batch <= %(batch)s
"""
_BETWEEN: Final = "and event.id >= %(first)s and event.id < %(end)s"
_UP_TO: Final = "and claimed.batch <= %(batch)s"
_OF_BATCH: Final = "and claimed.batch = %(batch)s"
_OF_TABLES: Final = "and event.schema_name || '.' || event.table_name = any(%(tables)s::text[])"
_FORGET_BATCHES: Final = """
    delete from {claimed_batches} where pipeline = %(pipeline)s and batch <= %(batch)s
"""
_FORGET_TABLES: Final = """
    delete from {claimed_tables} where pipeline = %(pipeline)s and batch <= %(batch)s
"""
_ACKNOWLEDGE: Final = """
    update {pipelines} set acknowledged = greatest(acknowledged, %(batch)s)
    where pipeline = %(pipeline)s
"""
_SETTLE_TABLES: Final = """
    delete from {claimed_tables}
    where pipeline = %(pipeline)s and batch = %(batch)s
        and schema_name || '.' || table_name = any(%(tables)s::text[])
"""
# What the tables that are left have in it, by their single ids.
_SHRINK: Final = """
    update {claimed_batches} as claimed set ids = coalesce((
        select range_agg(int8range(event.id, event.id, '[]'))
        from unnest(claimed.ids) as run (ids)
        cross join lateral (
            select event.id, event.source_id, event.schema_name, event.table_name
            from {events} as event
            where event.id >= lower(run.ids) and event.id < upper(run.ids) offset 0
        ) as event
        where exists (
            select from {claimed_tables} as listed
            where listed.pipeline = claimed.pipeline and listed.batch = claimed.batch
                and listed.source_id = event.source_id
                and listed.schema_name = event.schema_name
                and listed.table_name = event.table_name
        )
    ), '{{}}'::int8multirange)
    where claimed.pipeline = %(pipeline)s and claimed.batch = %(batch)s
"""
_ENOUGH: Final = """
    select true from {events} as event
    where event.source_id = any(%(sources)s) and event.processed_at is null
        and not {claimed} @> event.id {chosen}
    offset %(rows)s - 1 limit 1
"""
_MARKING: Final = "marking events as processed"
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


class IdSpan(NamedTuple):
    """Ids from the first one to before the end."""

    first: int
    end: int

    def halves(self) -> tuple[IdSpan, IdSpan]:
        """Two spans that are as wide as each other."""
        middle = (self.first + self.end) // 2
        return IdSpan(self.first, middle), IdSpan(middle, self.end)


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

    def load_span(self, session: Session, batch: int) -> IdSpan:
        """What encloses the ids of all batches up to this one."""
        parameters = self._parameters(batch=batch)
        (span,) = session.load(IdSpan, self._named(_SPAN), parameters, doing="reading claims")
        return span

    def mark(self, session: Session, batch: int, span: IdSpan) -> None:
        """Mark what the batches up to this one have in a span; they stay claimed."""
        mark = self._named(_MARK, of_tables=_BETWEEN, of_batches=_UP_TO)
        parameters = self._parameters(batch=batch, first=span.first, end=span.end)
        session.execute(mark, parameters, doing=_MARKING)

    def acknowledge(self, session: Session, batch: int) -> None:
        """The events of all batches up to this one are processed; may be repeated."""
        parameters, doing = self._parameters(batch=batch), _MARKING
        mark = self._named(_MARK, of_batches=_UP_TO)
        with session.transaction():
            # Again while there are some: one that is changed meanwhile has another place by then.
            while session.execute(mark, parameters, doing=doing) > 0:
                continue
            for statement in (_FORGET_BATCHES, _FORGET_TABLES, _ACKNOWLEDGE):
                session.execute(self._named(statement), parameters, doing=doing)

    def settle(self, session: Session, batch: int, tables: Sequence[str]) -> None:
        """The events of these tables in a batch are processed; the others stay claimed."""
        parameters = self._parameters(batch=batch, tables=list(tables))
        doing = _MARKING
        mark = self._named(_MARK, of_tables=_OF_TABLES, of_batches=_OF_BATCH)
        with session.transaction():
            # Again while there are some: one that is changed meanwhile has another place by then.
            while session.execute(mark, parameters, doing=doing) > 0:
                continue
            for statement in (_SETTLE_TABLES, _SHRINK):
                session.execute(self._named(statement), parameters, doing=doing)

    def _named(self, statement: str, *, of_tables: str = "", of_batches: str = "") -> str:
        relations = self.relations
        names = {
            "events": relations.events,
            "claimed": relations.claimed,
            "claimed_batches": relations.claimed_batches,
            "claimed_tables": relations.claimed_tables,
            "seen_tables": relations.seen_tables,
            "pipelines": relations.pipelines,
            "row_bytes": _ROW_BYTES,
        }
        return statement.format(
            **names,
            chosen="" if self.choice.is_all else _CHOSEN,
            of_tables=of_tables,
            of_batches=of_batches,
        )

    def _parameters(self, **given: object) -> dict[str, object]:
        choice = self.choice
        return {
            "pipeline": self.pipeline,
            "include": choice.include_pattern,
            "exclude": choice.exclude_pattern,
            **given,
        }
