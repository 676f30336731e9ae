"""The health of a buffer: what waits in it, since when, and what could not be written."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from frazil.clients.postgres.dsn import SessionAccess
from frazil.hooks import SystemClock
from frazil.model import humanize
from frazil.sources.buffer.upkeep.backpressure import BufferState
from frazil.sources.buffer.upkeep.chore_session import ChoreSession
from frazil.sources.health import HealthFacts, HealthLine, SourceHealth

if TYPE_CHECKING:
    from datetime import datetime

    from frazil.clients.postgres.session import Session
    from frazil.hooks import Clock
    from frazil.sources.buffer.settings import BufferSettings

# More is not counted: whoever reads the number knows enough.
MOST_COUNTED: Final = 100_001
# How old an answer may be: a count of many events takes some milliseconds of the server's time.
_SECONDS: Final = 3.0
_OURS: Final = "select to_regclass(%(pipelines)s) is not null"
# In the order of the index of pending events: the oldest of a source come first.
_PENDING: Final = """
    select count(*), extract(epoch from clock_timestamp() - min(created_at))::float8
    from (
        select created_at, schema_name || '.' || table_name as name from {events}
        where processed_at is null and ({all_sources} or source_id = any(%(sources)s::text[]))
        order by source_id, created_at limit %(most)s
    ) as pending
    where {all_tables} or (name ~ %(include)s and name !~ %(exclude)s)
"""
_LETTERS: Final = """
    select count(*) from (
        select from {letters} where {all_sources} or source_id = any(%(sources)s::text[])
        limit %(most)s
    ) as letters
"""
_STATE: Final = """
    select pipeline.last_batch, pipeline.acknowledged, said.state, said.changed_at
    from {pipelines} as pipeline
    left join {backpressure} as said on said.pipeline = pipeline.pipeline
    where pipeline.pipeline = %(pipeline)s
"""


class _Answer(NamedTuple):
    value: bool


class _Pending(NamedTuple):
    events: int
    oldest_seconds: float | None


class _Letters(NamedTuple):
    kept: int


class _State(NamedTuple):
    last_batch: int
    acknowledged: int
    state: str | None
    changed_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferObservation:
    """What was seen; without a state, nothing was drained yet."""

    pending: int
    oldest_seconds: float | None
    letters: int | None
    last_batch: int = 0
    acknowledged: int = 0
    state: BufferState | None = None


class BufferHealth:
    """One session that cannot write; one that is lost is opened again by the next load."""

    def __init__(self, settings: BufferSettings, *, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._session = ChoreSession(settings.dsn, purpose="status", access=SessionAccess.READ_ONLY)
        self._answer: tuple[float, SourceHealth] | None = None

    def load(self) -> SourceHealth:
        """The health now, or as it was a short while ago."""
        now = self._clock.monotonic()
        if self._answer is None or now - self._answer[0] >= _SECONDS:
            self._answer = now, describe_health(self._session.use(self._observe))
        asked, health = self._answer
        return replace(health, age_seconds=now - asked)

    def close(self) -> None:
        """End the session."""
        self._session.close()

    def _observe(self, session: Session) -> BufferObservation:
        return observe_buffer(session, self._settings)


def observe_buffer(session: Session, settings: BufferSettings) -> BufferObservation:
    """Count what waits."""
    doing = "reading the state of the buffer"
    relations, choice = settings.relations, settings.choice
    names = {
        "events": relations.events,
        "letters": relations.letters,
        "pipelines": relations.pipelines,
        "backpressure": relations.backpressure,
        "all_sources": "false" if settings.source_ids else "true",
        "all_tables": "true" if choice.is_all else "false",
    }
    parameters = {
        "sources": list(settings.source_ids),
        "most": MOST_COUNTED,
        "include": choice.include_pattern,
        "exclude": choice.exclude_pattern,
        "pipeline": settings.pipeline,
        "pipelines": relations.pipelines,
        "letters": relations.letters,
    }
    # Before the count: what is acknowledged meanwhile does not count as waiting.
    (ours,) = session.load(_Answer, _OURS, parameters, doing=doing)
    states = []
    if ours.value:
        states = session.load(_State, _STATE.format(**names), parameters, doing=doing)
    (pending,) = session.load(_Pending, _PENDING.format(**names), parameters, doing=doing)
    letters: int | None = None
    if settings.letters.enabled:
        (found,) = session.load(_Letters, _LETTERS.format(**names), parameters, doing=doing)
        letters = found.kept
    state = states[0] if states else None
    said = None if state is None or state.state is None else BufferState(state.state)
    return BufferObservation(
        pending=pending.events,
        oldest_seconds=pending.oldest_seconds,
        letters=letters,
        last_batch=0 if state is None else state.last_batch,
        acknowledged=0 if state is None else state.acknowledged,
        state=said,
    )


def describe_health(found: BufferObservation) -> SourceHealth:
    """What that means; pure."""
    return SourceHealth(
        # The batch that pending events are in, or will be.
        newest=found.last_batch + 1 if found.pending else found.last_batch,
        facts=show_buffer(found),
    )


def show_buffer(found: BufferObservation) -> HealthFacts:
    """The buffer for programs and for people; pure."""
    is_full = found.state is BufferState.PAUSED
    pending = f"{_number(found.pending)} {'event' if found.pending == 1 else 'events'}"
    age = 0.0 if found.oldest_seconds is None else max(0.0, found.oldest_seconds)
    oldest = f"the oldest {humanize.duration(age)} old" if found.pending else ""
    state = "" if found.state is None else found.state.value
    lines = [HealthLine(label="Pending", text=pending, note=oldest)]
    if state:
        text = "full: writers should pause" if is_full else "writers may go on"
        lines.append(HealthLine(label="Buffer", text=text, is_well=not is_full))
    lines.append(
        HealthLine(
            label="Last batch",
            text=str(found.last_batch) if found.last_batch else "none yet",
            note="" if found.acknowledged >= found.last_batch else "not acknowledged yet",
        )
    )
    if found.letters is not None:
        text = _number(found.letters)
        note = "frazil dlq ls lists them" if found.letters else ""
        lines.append(
            HealthLine(label="Dead letters", text=text, note=note, is_well=not found.letters)
        )
    said = [f"{pending} pending", oldest, f"last batch {found.last_batch}"]
    said += [f"{_number(found.letters)} dead letters"] if found.letters else []
    said += ["full"] if is_full else []
    return HealthFacts(
        details={
            "pending": {
                "events": found.pending,
                "is_bounded": found.pending >= MOST_COUNTED,
                "oldest_seconds": age,
                "is_full": None if found.state is None else int(is_full),
                "state": state or None,
            },
            "batches": {"last": found.last_batch, "acknowledged": found.acknowledged},
            "dead_letters": {"count": found.letters},
        },
        lines=tuple(lines),
        summary=", ".join(filter(None, said)),
        counts_bytes=False,
    )


def _number(count: int) -> str:
    if count < MOST_COUNTED:
        return humanize.number(count)
    return f"more than {humanize.number(MOST_COUNTED - 1)}"
