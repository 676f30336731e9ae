"""The buffer database as its one worker sees it: a session that holds the locks of its sources.

A source is drained by one process at a time. Whoever drains all of them holds the lock of the
buffer alone; whoever drains some shares it, and holds those of its sources. The locks belong to the
session: when that breaks, so do they, and nothing is claimed before they are taken again. Should
another process be faster, what the first one has planned is refused by the markers of its tables.
"""

from __future__ import annotations

from threading import RLock
from typing import TYPE_CHECKING, Final, NamedTuple

from frazil.clients.postgres.connecting import connect
from frazil.clients.postgres.dsn import SessionAccess
from frazil.clients.postgres.lock_claim import KEEP_LOCKS, lock_key
from frazil.errors import SlotBusyError, SourceUnavailableError
from frazil.sources.buffer.claims import Claims
from frazil.sources.buffer.own_tables import ensure_own_tables
from frazil.sources.buffer.reading.event_queries import BY_INDEX
from frazil.sources.buffer.reading.shape import parse_history

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from frazil.clients.postgres.session import Session
    from frazil.sources.buffer.claims import ClaimedTable, NewClaim
    from frazil.sources.buffer.reading.shape import HistoryColumns
    from frazil.sources.buffer.relations import BufferRelations
    from frazil.sources.buffer.settings import BufferSettings
    from frazil.sources.protocol import Limit

_LOCK_ALONE: Final = "select pg_try_advisory_lock(%(key)s)"
_LOCK_SHARED: Final = "select pg_try_advisory_lock_shared(%(key)s)"
_PING: Final = "select true"
_REGISTER: Final = """
    insert into {pipelines} (pipeline) values (%(pipeline)s) on conflict do nothing
"""
_STATE: Final = """
    select current_database(), identity::text, last_batch, acknowledged
    from {pipelines} where pipeline = %(pipeline)s
"""
_SEEN: Final = """
    select source_id, schema_name, table_name from {seen_tables}
    where pipeline = %(pipeline)s order by schema_name, table_name
"""
_HAS_HISTORY: Final = "select to_regclass(%(history)s) is not null"
_HISTORY: Final = """
    select distinct on (schema_name, table_name, source_id)
        source_id, schema_name, table_name, columns::text
    from {history}
    where (%(sources)s::text[] = '{{}}' or source_id = any(%(sources)s))
    order by schema_name, table_name, source_id, version desc
"""


class PipelineState(NamedTuple):
    """What the buffer keeps of a pipeline; ``identity`` is that of our tables in it."""

    database: str
    identity: str
    last_batch: int
    acknowledged: int

    @property
    def source(self) -> str:
        """What numbers of batches count in: the database, and our tables in it."""
        return f"buffer://{self.database}/{self.identity}"


class SeenTable(NamedTuple):
    """A table that events were met of."""

    source_id: str
    schema: str
    name: str


class TableHistory(NamedTuple):
    """The newest columns of a table, as JSON, where the writer has kept them."""

    source_id: str
    schema: str
    name: str
    columns: str


class _Answer(NamedTuple):
    value: bool


def explain_source_change(before: str, now: str) -> tuple[str, ...]:
    """A table is that of its source."""
    return () if before == now else (f"events of the source {now} took its name",)


def parsed_histories(found: Iterable[TableHistory]) -> dict[tuple[str, str], HistoryColumns]:
    """The columns that the writer has kept, by table and source."""
    return {
        (f"{each.schema}.{each.name}", each.source_id): parse_history(each.columns)
        for each in found
    }


def load_history(
    session: Session, relations: BufferRelations, sources: Sequence[str]
) -> list[TableHistory]:
    """The columns of tables, where the writer keeps them."""
    query = _HISTORY.format(history=relations.history)
    return session.load(TableHistory, query, {"sources": list(sources)}, doing="reading columns")


def load_state(session: Session, relations: BufferRelations, pipeline: str) -> PipelineState | None:
    """How far a pipeline is; None: it has not begun."""
    query = _STATE.format(pipelines=relations.pipelines)
    found = session.load(PipelineState, query, {"pipeline": pipeline}, doing="reading claims")
    return found[0] if found else None


def load_seen(session: Session, relations: BufferRelations, pipeline: str) -> list[SeenTable]:
    """Every table that a pipeline has met events of."""
    query = _SEEN.format(seen_tables=relations.seen_tables)
    return session.load(SeenTable, query, {"pipeline": pipeline}, doing="reading tables")


class BufferDatabase:
    """One session, made when it is first needed; any thread may use it, one at a time."""

    def __init__(self, settings: BufferSettings) -> None:
        self._settings = settings
        self._lock = RLock()
        self._session: Session | None = None
        self._has_history = False
        # How often a session was made: what was planned in an earlier one is not to be used.
        self.sessions = 0
        self._claims = Claims(settings.relations, settings.pipeline, settings.choice)

    def close(self) -> None:
        """End the session, and with it the locks."""
        with self._lock:
            session, self._session = self._session, None
            if session is not None:
                session.close()

    def load_state(self) -> PipelineState:
        """How far the pipeline is."""
        settings = self._settings
        with self._lock:
            state = load_state(self._working(), settings.relations, settings.pipeline)
        if state is None:
            message = "what frazil keeps in the buffer database was removed while it was used."
            raise SourceUnavailableError(message)
        return state

    def load_seen(self) -> list[SeenTable]:
        """Every table that events were met of."""
        with self._lock:
            return load_seen(self._working(), self._settings.relations, self._settings.pipeline)

    def load_history(self) -> list[TableHistory]:
        """The columns of tables, as far as the writer says."""
        with self._lock:
            session = self._working()
            if not self._has_history:
                return []
            return load_history(session, self._settings.relations, self._settings.source_ids)

    def load_open(self, after: int) -> list[ClaimedTable]:
        """What batches behind this one have."""
        with self._lock:
            return self._claims.load_open(self._working(), after)

    def claim(self, limit: Limit) -> NewClaim | None:
        """Claim pending events; None when there are none."""
        with self._lock:
            session = self._working()
            return self._claims.claim(session, self._sources(session), limit)

    def has_pending(self, rows: int = 1) -> bool:
        """Whether so many events could be claimed."""
        with self._lock:
            session = self._working()
            return self._claims.has_pending(session, self._sources(session), rows)

    def acknowledge(self, batch: int) -> None:
        """Mark what the batches up to this one have as processed."""
        with self._lock:
            self._claims.acknowledge(self._working(), batch)

    def settle(self, batch: int, tables: Sequence[str]) -> None:
        """Mark what these tables have in a batch as processed."""
        with self._lock:
            self._claims.settle(self._working(), batch, tables)

    def require_session(self, number: int) -> None:
        """Raise SourceUnavailableError unless the session of this number is still there."""
        with self._lock:
            if self._session is not None and self.sessions == number:
                try:
                    self._session.load(_Answer, _PING, doing="checking the locks")
                except SourceUnavailableError:
                    self.close()
                else:
                    return
        message = "the session that held the locks of the buffer ended while events were read."
        raise SourceUnavailableError(message)

    def session(self) -> Session:
        """The session with the locks, for statements of its owner's thread."""
        with self._lock:
            return self._working()

    def _sources(self, session: Session) -> Sequence[str]:
        return self._settings.source_ids or self._claims.pending_sources(session)

    def _working(self) -> Session:
        if self._session is not None and self._session.is_closed:
            self._session = None
        if self._session is None:
            self._session = self._connect()
            self.sessions += 1
        return self._session

    def _connect(self) -> Session:
        settings = self._settings
        session = connect(settings.dsn, purpose="drain", access=SessionAccess.READ_WRITE)
        try:
            session.execute(KEEP_LOCKS, doing="setting up the locks")
            session.execute(BY_INDEX, doing="setting up the session")
            _take_locks(session, settings)
            ensure_own_tables(session, settings.relations)
            register = _REGISTER.format(pipelines=settings.relations.pipelines)
            pipeline = {"pipeline": settings.pipeline}
            session.execute(register, pipeline, doing="registering the pipeline")
            history = {"history": settings.relations.history}
            (answer,) = session.load(_Answer, _HAS_HISTORY, history, doing="looking for columns")
            self._has_history = answer.value
        except BaseException:
            session.close()
            raise
        return session


def _take_locks(session: Session, settings: BufferSettings) -> None:
    sources = settings.source_ids
    whole = _LOCK_SHARED if sources else _LOCK_ALONE
    wanted = [(whole, f"buffer {settings.relations.events}")]
    wanted += [
        (_LOCK_ALONE, f"source {each} of {settings.relations.events}") for each in sorted(sources)
    ]
    for statement, name in wanted:
        key = {"key": lock_key(name)}
        (answer,) = session.load(_Answer, statement, key, doing="taking the locks")
        if not answer.value:
            message = f"another process drains the {name}."
            raise SlotBusyError(message)
