"""Whether the buffer is full, shown to those who write into it.

Pending events are counted up to the high mark only, through the index of pending events: the count
costs what is waiting, never what the table holds. The answer is a row in a table of ours, which a
writer reads before it writes; between the marks it stays what it was, also across a restart.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from frazil.sources.buffer.own_tables import ensure_own_tables
from frazil.sources.buffer.settings import TableChoice
from frazil.sources.buffer.upkeep.chore_session import ChoreSession
from frazil.telemetry.logs import get_logger

if TYPE_CHECKING:
    from datetime import timedelta

    from frazil.clients.postgres.dsn import SecretText
    from frazil.clients.postgres.session import Session
    from frazil.sources.buffer.relations import BufferRelations

_log = get_logger(__name__)

_OF_SOURCES: Final = "and source_id = any(%(sources)s::text[])"
# In the order of the index, so that it is used however few rows are pending.
_COUNT: Final = """
    select count(*) from (
        select schema_name || '.' || table_name as name from {events}
        where processed_at is null {of_sources}
        order by source_id, created_at limit %(looked_at)s
    ) as pending
"""
_CHOSEN: Final = "where name ~ %(include)s and name !~ %(exclude)s"
# Events of tables that are left out stay pending: so many of them are passed over.
_PASSED_OVER: Final = 10
_SAID: Final = "select state from {backpressure} where pipeline = %(pipeline)s"
_SAY: Final = """
    insert into {backpressure} as said (
        pipeline, source_ids, state, pending, high, low, changed_at, checked_at
    )
    values (
        %(pipeline)s, %(sources)s::text[], %(state)s, %(pending)s, %(high)s, %(low)s, now(), now()
    )
    on conflict (pipeline) do update set
        source_ids = excluded.source_ids, pending = excluded.pending, high = excluded.high,
        low = excluded.low, checked_at = excluded.checked_at,
        changed_at = case when said.state = excluded.state then said.changed_at else now() end,
        state = excluded.state
"""


class BufferState(StrEnum):
    """What writers are asked to do."""

    RUNNING = "running"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class WaterMarks:
    """Full from ``high`` pending events on, and not any more from ``low`` downwards."""

    high: int
    low: int

    def judge(self, pending: int, before: BufferState) -> BufferState:
        """The state with so many pending events; pure."""
        if pending >= self.high:
            return BufferState.PAUSED
        return BufferState.RUNNING if pending <= self.low else before


@dataclass(frozen=True, slots=True)
class Drained:
    """Which events a pipeline drains; without ids, those of all sources."""

    source_ids: tuple[str, ...] = ()
    choice: TableChoice = field(default_factory=TableChoice)


class _Count(NamedTuple):
    value: int


def count_pending(
    session: Session, relations: BufferRelations, drained: Drained, *, most: int
) -> int:
    """How many events are pending, not counted beyond ``most``."""
    query = _COUNT.format(
        events=relations.events, of_sources=_OF_SOURCES if drained.source_ids else ""
    )
    parameters = {"sources": list(drained.source_ids), "looked_at": most}
    if not drained.choice.is_all:
        query += _CHOSEN
        parameters |= {
            "looked_at": most * _PASSED_OVER,
            "include": drained.choice.include_pattern,
            "exclude": drained.choice.exclude_pattern,
        }
    doing = "counting pending events"
    return min(most, session.load(_Count, query, parameters, doing=doing)[0].value)


class BackpressureMarks:
    """Counts and tells, as a chore."""

    name = "back-pressure"

    def __init__(
        self,
        dsn: SecretText,
        relations: BufferRelations,
        marks: WaterMarks,
        *,
        pipeline: str,
        interval: timedelta,
        drained: Drained,
    ) -> None:
        self._relations = relations
        self._marks = marks
        self._pipeline = pipeline
        self._drained = drained
        self.seconds = interval.total_seconds()
        self._state: BufferState | None = None
        self._session = ChoreSession(
            dsn,
            purpose="back-pressure",
            prepare=lambda session: ensure_own_tables(session, relations),
        )

    def run(self) -> None:
        """Count what is pending, and tell."""
        self._session.use(self._tell)

    def close(self) -> None:
        """End the session."""
        self._session.close()

    def _tell(self, session: Session) -> None:
        before = self._state or load_state(session, self._relations, self._pipeline)
        most = self._marks.high + 1
        pending = count_pending(session, self._relations, self._drained, most=most)
        state = self._marks.judge(pending, before or BufferState.RUNNING)
        session.execute(
            _SAY.format(backpressure=self._relations.backpressure),
            {
                "pipeline": self._pipeline,
                "sources": list(self._drained.source_ids),
                "state": state.value,
                "pending": pending,
                "high": self._marks.high,
                "low": self._marks.low,
            },
            doing="telling writers whether the buffer is full",
        )
        if state is not before and before is not None:
            _log.info("back-pressure changed", state=state.value, pending=pending)
        self._state = state


class _State(NamedTuple):
    value: str


def load_state(session: Session, relations: BufferRelations, pipeline: str) -> BufferState | None:
    """What was shown to writers last; None: nothing yet."""
    query = _SAID.format(backpressure=relations.backpressure)
    doing = "reading the state of the buffer"
    found = session.load(_State, query, {"pipeline": pipeline}, doing=doing)
    return BufferState(found[0].value) if found else None
