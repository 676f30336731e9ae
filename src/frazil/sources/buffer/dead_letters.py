"""Events that are no rows, in the buffer's own table of dead letters.

A letter is written before its batch commits anything, and once for an event however often the
batch is repeated. A batch that reads an event with a letter again says so first (``expect``): if it
is rejected again, its letter says why (``keep``); if not, it lands, and the letter is removed as
soon as the event is processed (``settle``). So an event is never in its table and among the
letters that can be replayed, whenever a process dies.

A replay makes the event pending again, with the id that it had and as its letter has it now, which
an operator may have corrected, in the same transaction that counts the attempt: the next batch
reads it like any other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from frazil.errors import MalformedChangeError, SourceUnavailableError
from frazil.model.records.dead_letter import DeadLetter
from frazil.sources.buffer.own_tables import ensure_own_tables

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from datetime import datetime, timedelta

    from frazil.clients.postgres.session import Session
    from frazil.model.records.rejected_record import RejectedRecord
    from frazil.sources.buffer.relations import BufferRelations

# Letters of one statement: the server holds them in memory.
_PORTION: Final = 1000
# As many digits as are sure to fit 64 bits.
_NUMBER_TEXT: Final = re.compile("[0-9]{1,18}")

_EXPECT: Final = """
    insert into {undecided} (event_id)
    select distinct letter.original_event_id
    from {letters} as letter
    where coalesce((
        select range_agg(run.ids) from {claimed_batches} as claimed
        cross join lateral unnest(claimed.ids) as run (ids) where claimed.batch = %(batch)s
    ) @> letter.original_event_id, false) and (
        %(tables)s::text[] is null
        or letter.schema_name || '.' || letter.table_name = any(%(tables)s)
    )
    on conflict do nothing
"""
# What a letter holds is made of the event as it is in the buffer: nothing is lost on the way.
_KEEP: Final = """
    with rejected as (
        select * from unnest(%(ids)s::bigint[], %(reasons)s::text[], %(messages)s::text[])
            as each (event_id, reason, message)
    ), again as (
        update {letters} as letter
        set error_type = rejected.reason, error_message = rejected.message,
            expires_at = now() + %(retention)s::interval
        from rejected where letter.original_event_id = rejected.event_id
        returning letter.original_event_id
    ), made as (
        insert into {letters} (
            original_event_id, source_id, schema_name, table_name, operation, event_data,
            error_message, error_type, expires_at
        )
        select
            event.id, event.source_id, event.schema_name, event.table_name, event.operation,
            jsonb_build_object(
                'id', event.id, 'lsn', event.lsn, 'transaction_id', event.transaction_id,
                'timestamp', event.event_time, 'schema', event.schema_name,
                'table', event.table_name, 'operation', event.operation,
                'before', event.before_data, 'after', event.after_data,
                'key_columns', event.key_columns, 'metadata', event.metadata
            ),
            rejected.message, rejected.reason, now() + %(retention)s::interval
        from rejected join {events} as event on event.id = rejected.event_id
        where not exists (select from again where again.original_event_id = event.id)
        returning original_event_id
    ), decided as (
        delete from {undecided} as undecided using rejected
        where undecided.event_id = rejected.event_id
    )
    select original_event_id from again union select original_event_id from made
"""
# An event that is gone was processed: nothing else is ever deleted.
_SETTLE: Final = """
    with landed as (
        delete from {undecided} as undecided
        where not exists (
            select from {events} as event
            where event.id = undecided.event_id and event.processed_at is null
        )
        returning event_id
    )
    delete from {letters} as letter using landed where letter.original_event_id = landed.event_id
"""
_CHOSEN: Final = """
    (%(ids)s::bigint[] is null or letter.id = any(%(ids)s))
    and (%(sources)s::text[] = '{{}}' or letter.source_id = any(%(sources)s))
    and (%(table)s::text is null or letter.schema_name || '.' || letter.table_name = %(table)s)
    and (%(reason)s::text is null or letter.error_type = %(reason)s)
"""
_LIST: Final = (
    """
    select
        letter.id, letter.source_id, letter.original_event_id,
        letter.schema_name || '.' || letter.table_name, coalesce(letter.error_type, ''),
        letter.error_message, octet_length(letter.event_data::text), letter.created_at,
        coalesce(letter.last_retry_at, letter.created_at), coalesce(letter.retry_count, 0)
    from {letters} as letter
    where letter.id > %(after)s and """
    + _CHOSEN
    + """
    order by letter.id limit %(portion)s
"""
)
_PAYLOADS: Final = """
    select letter.id, letter.event_data::text from {letters} as letter
    where letter.id = any(%(ids)s::bigint[])
"""
_DROP: Final = "delete from {letters} where id = any(%(ids)s::bigint[])"
# Letters that the writer of the buffer made may not know their event.
_NUMBER: Final = """
    update {letters} set original_event_id = nextval(pg_get_serial_sequence(%(events)s, 'id'))
    where id = any(%(ids)s::bigint[]) and original_event_id is null
"""
_REPLAY: Final = """
    with chosen as (
        select * from {letters} where id = any(%(ids)s::bigint[]) order by id for update
    ), pending as (
        update {events} as event set processed_at = null,
            lsn = coalesce(event_data ->> 'lsn', event.lsn),
            key_columns = case when event_data ? 'key_columns'
                then nullif(event_data -> 'key_columns', 'null') else event.key_columns end,
            before_data = case when event_data ? 'before'
                then nullif(event_data -> 'before', 'null') else event.before_data end,
            after_data = case when event_data ? 'after'
                then nullif(event_data -> 'after', 'null') else event.after_data end
        from chosen
        where event.id = chosen.original_event_id and event.processed_at is not null
            and not {claimed} @> event.id
        returning event.id
    ), restored as (
        insert into {events} (
            id, source_id, schema_name, table_name, operation, lsn, transaction_id,
            key_columns, before_data, after_data, metadata, event_time
        )
        select
            original_event_id, source_id, schema_name, table_name, operation,
            event_data ->> 'lsn', (event_data ->> 'transaction_id')::bigint,
            nullif(event_data -> 'key_columns', 'null'), nullif(event_data -> 'before', 'null'),
            nullif(event_data -> 'after', 'null'), nullif(event_data -> 'metadata', 'null'),
            (event_data ->> 'timestamp')::timestamptz
        from chosen
        where event_data ->> 'lsn' is not null and event_data ->> 'timestamp' is not null
            and not exists (select from {events} as event where event.id = original_event_id)
        on conflict (id) do nothing
        returning id
    )
    update {letters} as letter
    set retry_count = coalesce(letter.retry_count, 0) + 1, last_retry_at = now()
    where letter.id in (select id from chosen) and letter.original_event_id in (
        select id from pending union all select id from restored
    )
"""
_PENDING: Final = """
    select letter.id from {letters} as letter
    join {events} as event on event.id = letter.original_event_id and event.processed_at is null
    where letter.id = any(%(ids)s::bigint[])
"""


class _EventId(NamedTuple):
    id: int


class _Payload(NamedTuple):
    id: int
    text: str


class _Listed(NamedTuple):
    id: int
    source: str
    event: int | None
    table: str
    reason: str
    message: str
    payload_bytes: int
    first_seen_at: datetime
    last_seen_at: datetime
    retries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterPolicy:
    """What is done about events that are no rows."""

    enabled: bool
    retention: timedelta


def expect_letters(
    session: Session,
    relations: BufferRelations,
    batch: int,
    tables: Collection[str] | None = None,
) -> None:
    """The events of this batch are read again: whether their letters stay is open.

    Only those of tables that are read: a table that has committed the batch rejects nothing again,
    and its letters would be taken for landed.
    """
    if not relations.has_letters:
        return
    parameters = {"batch": batch, "tables": None if tables is None else list(tables)}
    _execute(session, relations, _EXPECT, parameters, doing="looking up dead letters")


def keep_letters(
    session: Session,
    relations: BufferRelations,
    records: Sequence[RejectedRecord],
    policy: LetterPolicy,
) -> None:
    """Write the rejected events of a batch, all or none; the offset of each is its event's id.

    Whatever goes wrong is raised: a batch whose letters are not kept must not be acknowledged.
    """
    if records and not policy.enabled:
        first = records[0]
        message = (
            f"event {first.offset} is no row of its table ({first.reason.value}), and dead letters "
            "are switched off."
        )
        next_step = "set source.dead_letters.enabled: true, or correct the event"
        raise MalformedChangeError(message, table=first.table, next_step=next_step)
    wanted = {each.offset: each for each in records}
    parameters = {
        "ids": list(wanted),
        "reasons": [each.reason.value for each in wanted.values()],
        "messages": [each.message for each in wanted.values()],
        "retention": policy.retention,
    }
    query = _named(_KEEP, relations)
    doing = "writing dead letters"
    with session.transaction():
        kept = session.load(_EventId, query, parameters, doing=doing)
        missing = wanted.keys() - {each.id for each in kept}
        if missing:
            message = f"event {min(missing)} is not in the buffer any more; it is read again."
            raise SourceUnavailableError(message, table=wanted[min(missing)].table)


def settle_letters(session: Session, relations: BufferRelations) -> int:
    """Remove the letters of events that have landed since; how many."""
    if not relations.has_letters:
        return 0
    return _execute(session, relations, _SETTLE, {}, doing="settling dead letters")


class BufferLetterStore:
    """The dead letters of the sources that a pipeline drains; lives on the driver."""

    def __init__(
        self, session: Session, relations: BufferRelations, source_ids: Collection[str] = ()
    ) -> None:
        self._session = session
        self._relations = relations
        self._source_ids = tuple(source_ids)

    def letters(
        self,
        *,
        ids: Collection[str] | None = None,
        table: str | None = None,
        reason: str | None = None,
    ) -> Iterator[DeadLetter]:
        """Those that are meant, oldest first; without payloads, which may be large."""
        query = _named(_LIST, self._relations)
        after = 0
        chosen = {
            "ids": None if ids is None else _numbers(ids),
            "sources": list(self._source_ids),
            "table": table,
            "reason": reason,
            "portion": _PORTION,
        }
        while True:
            parameters = {**chosen, "after": after}
            found = self._session.load(_Listed, query, parameters, doing="reading dead letters")
            yield from map(_letter, found)
            if len(found) < _PORTION:
                return
            after = found[-1].id

    def payloads(self, ids: Collection[str]) -> dict[str, bytes]:
        """The event that each letter holds, as JSON; one that is gone has none."""
        query = _named(_PAYLOADS, self._relations)
        doing = "reading dead letters"
        found = self._session.load(_Payload, query, {"ids": _numbers(ids)}, doing=doing)
        return {str(each.id): each.text.encode() for each in found}

    def drop(self, ids: Collection[str]) -> None:
        """Remove letters, all or none."""
        parameters = {"ids": _numbers(ids)}
        _execute(self._session, self._relations, _DROP, parameters, doing="dropping dead letters")

    def replay(self, ids: Sequence[str]) -> frozenset[str]:
        """Make their events pending again; the letters whose events are.

        One that is not cannot be made from what its letter holds. May be repeated: an event that
        waits already is not counted as another attempt.
        """
        ensure_own_tables(self._session, self._relations)
        # One that has landed since must not land again.
        settle_letters(self._session, self._relations)
        numbers = _numbers(ids)
        pending: list[_EventId] = []
        for at in range(0, len(numbers), _PORTION):
            pending += self._replay(numbers[at : at + _PORTION])
        return frozenset(str(each.id) for each in pending)

    def _replay(self, numbers: Sequence[int]) -> list[_EventId]:
        doing = "making events of dead letters pending"
        relations, parameters = self._relations, {"ids": list(numbers)}
        with self._session.transaction():
            named = {**parameters, "events": relations.events}
            _execute(self._session, relations, _NUMBER, named, doing=doing)
            _execute(self._session, relations, _REPLAY, parameters, doing=doing)
            query = _named(_PENDING, relations)
            return self._session.load(_EventId, query, parameters, doing=doing)


def _execute(
    session: Session,
    relations: BufferRelations,
    statement: str,
    parameters: Mapping[str, object],
    *,
    doing: str,
) -> int:
    return session.execute(_named(statement, relations), parameters, doing=doing)


def _named(statement: str, relations: BufferRelations) -> str:
    return statement.format(
        events=relations.events,
        letters=relations.letters,
        claimed_batches=relations.claimed_batches,
        claimed=relations.claimed,
        undecided=relations.undecided,
    )


def _numbers(ids: Collection[str]) -> list[int]:
    """Ids as the table counts them; what is no number is no id."""
    return [int(each) for each in ids if _NUMBER_TEXT.fullmatch(each)]


def _letter(row: _Listed) -> DeadLetter:
    return DeadLetter(
        id=str(row.id),
        source=row.source,
        position="" if row.event is None else str(row.event),
        table=row.table,
        reason=row.reason,
        message=row.message,
        payload_bytes=row.payload_bytes,
        first_seen_at=row.first_seen_at,
        last_seen_at=row.last_seen_at,
        attempts=row.retries + 1,
        batch="",
    )
