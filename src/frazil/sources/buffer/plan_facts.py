"""What the next run would do with a buffer: which events wait for which table, and what is new.

Nothing is written: a database that was never drained has no table of ours, and gets none. Pending
events are counted through their index up to a bound, and columns are looked for in the oldest ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from frazil.clients.postgres.connecting import connect
from frazil.clients.postgres.dsn import SessionAccess
from frazil.errors import FrazilError, SourceReplacedError
from frazil.model import humanize
from frazil.sources.buffer.claims import ClaimedTable
from frazil.sources.buffer.database import (
    explain_source_change,
    load_history,
    load_seen,
    load_state,
    parsed_histories,
)
from frazil.sources.buffer.reading.event_queries import PendingEvents
from frazil.sources.buffer.reading.learning import LearningTable, learn_shapes
from frazil.sources.buffer.reading.shape import HistoryColumns, TableShape, described_table
from frazil.sources.plan_facts import PlannedTable, SourcePreparation, WaitingChanges

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from frazil.clients.postgres.session import Session
    from frazil.config import TableSettings
    from frazil.model.marker import Marker, Position
    from frazil.model.source_table import SourceTable
    from frazil.sources.buffer.database import PipelineState
    from frazil.sources.buffer.settings import BufferSettings
    from frazil.sources.protocol import TableProgress

# More is not counted, here and in a status: whoever reads the number knows enough.
MOST_COUNTED: Final = 100_000
# Enough to meet the columns of a table, and read in a second.
_MOST_LOOKED_AT: Final = 10_000
_DOING: Final = "looking for events"
_THERE: Final = """
    select to_regclass(%(pipelines)s) is not null, to_regclass(%(history)s) is not null
"""
_PENDING: Final = """
    select source_id, schema_name, table_name, count(*)::bigint, min(id), max(id),
        extract(epoch from clock_timestamp() - min(created_at))::float8
    from (
        select id, source_id, schema_name, table_name, created_at from {events}
        where processed_at is null
            and (%(sources)s::text[] = '{{}}' or source_id = any(%(sources)s))
        order by source_id, created_at limit %(most)s
    ) as pending
    group by source_id, schema_name, table_name order by schema_name, table_name, source_id
"""


class _There(NamedTuple):
    ours: bool
    history: bool


class PendingTable(NamedTuple):
    """Events of a table that are not processed, counted up to the bound of all tables."""

    source_id: str
    schema: str
    name: str
    events: int
    first_id: int
    last_id: int
    oldest_seconds: float

    @property
    def table(self) -> str:
        """The table's name at the source."""
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Observed:
    """The database as it was."""

    state: PipelineState | None
    has_own_tables: bool
    pending: Mapping[str, PendingTable]
    sources: Mapping[str, str]
    histories: Mapping[tuple[str, str], HistoryColumns] = field(default_factory=dict)

    @property
    def is_bounded(self) -> bool:
        """Whether there are more events than were counted."""
        return sum(each.events for each in self.pending.values()) >= MOST_COUNTED


class BufferPlanFacts:
    """A buffer as it was when this was made; columns are looked up when a table is asked for."""

    def __init__(self, settings: BufferSettings) -> None:
        self._settings = settings
        with self._open() as session:
            self._observed = _observe(session, settings)

    @property
    def tables(self) -> Mapping[str, SourceTable]:
        """Tables that events were met of, wait of, or that the writer keeps columns of."""
        sources = self._observed.sources
        return {name: described_table(name, sources[name], TableShape()) for name in sources}

    def selects(self, table: str) -> bool:
        """Whether its events are drained."""
        return self._settings.choice.selects(table)

    def explain_identity_change(
        self,
        before: str,
        now: str,
        *,
        was_gone: bool = False,  # noqa: ARG002 - a table is known by its source
    ) -> tuple[str, ...]:
        """As the source does."""
        return explain_source_change(before, now)

    def plan_preparation(self, tables: Collection[str], since: Marker | None) -> SourcePreparation:
        """Our tables are made; a ledger that counts in another database is refused."""
        observed, relations = self._observed, self._settings.relations
        state = observed.state
        if since is not None and (state is None or since.source != state.source):
            now = "no table of this pipeline" if state is None else state.source
            message = f"batches were counted in {since.source}, and here is {now}."
            next_step = "name the buffer of before in source.dsn, or another pipeline"
            return SourcePreparation(problem=SourceReplacedError(message, next_step=next_step))
        events = sum(each.events for name, each in observed.pending.items() if name in tables)
        said = f"{_count(events, is_bounded=observed.is_bounded)} of {len(tables)} tables wait"
        lines = [("events", said)]
        if not observed.has_own_tables:
            lines.append(("schema", f"{relations.own_schema} is made, for claims"))
        return SourcePreparation(
            lines=tuple(lines),
            document={
                "pending": events,
                "is_bounded": observed.is_bounded,
                "makes_schema": not observed.has_own_tables,
                "last_batch": 0 if state is None else state.last_batch,
            },
            has_work=not observed.has_own_tables,
        )

    def load_waiting(
        self,
        table: str,
        at: TableProgress,  # noqa: ARG002 - what it has is marked as processed
        acknowledged: Position | None,  # noqa: ARG002 - the same
    ) -> WaitingChanges:
        """The pending events of a table."""
        found = self._observed.pending.get(table)
        if found is None:
            # There may be some behind those that were counted.
            is_unknown = self._observed.is_bounded
            return WaitingChanges(has_any=None if is_unknown else False, document={"events": 0})
        age = humanize.duration(max(0.0, found.oldest_seconds))
        count = _count(found.events, is_bounded=self._observed.is_bounded)
        return WaitingChanges(
            has_any=True,
            text=f"{count} wait in the buffer, the oldest {age} old",
            document={"events": found.events, "oldest_seconds": found.oldest_seconds},
        )

    def describe(self, table: str, settings: TableSettings, shape: str) -> PlannedTable:
        """The table as its oldest pending events need it."""
        source = self._observed.sources[table]
        schema, _, name = table.partition(".")
        found = self._observed.pending.get(table)
        first, last = (0, 0) if found is None else (found.first_id, found.last_id)
        events = 0 if found is None else found.events
        learning = LearningTable(
            claimed=ClaimedTable(0, source, schema, name, events, 0, first, last),
            shape=shape,
            history=self._observed.histories.get((table, source), HistoryColumns()),
            settings=settings,
        )
        pending = PendingEvents(
            relations=self._settings.relations,
            source_id=source,
            schema=schema,
            name=name,
            most=_MOST_LOOKED_AT,
        )
        with self._open() as session:
            grown = learn_shapes(session, pending, [learning])[table]
        if isinstance(grown, FrazilError):
            raise grown
        return PlannedTable(
            table=described_table(table, source, grown.shape),
            no_key="its events name no key; declare one in tables[].key",
        )

    def _open(self) -> Session:
        return connect(self._settings.dsn, purpose="plan", access=SessionAccess.READ_ONLY)


def _observe(session: Session, settings: BufferSettings) -> _Observed:
    relations, choice = settings.relations, settings.choice
    names = {"pipelines": relations.pipelines, "history": relations.history}
    (there,) = session.load(_There, _THERE, names, doing=_DOING)
    parameters = {"sources": list(settings.source_ids), "most": MOST_COUNTED}
    query = _PENDING.format(events=relations.events)
    pending = session.load(PendingTable, query, parameters, doing=_DOING)
    found = load_history(session, relations, settings.source_ids) if there.history else []
    histories = parsed_histories(found)
    seen = load_seen(session, relations, settings.pipeline) if there.ours else []
    sources = {each.table: each.source_id for each in pending} | dict(histories.keys())
    sources |= {f"{each.schema}.{each.name}": each.source_id for each in seen}
    chosen = {name: sources[name] for name in sorted(sources) if choice.selects(name)}
    return _Observed(
        state=load_state(session, relations, settings.pipeline) if there.ours else None,
        has_own_tables=there.ours,
        pending={each.table: each for each in pending if each.table in chosen},
        sources=chosen,
        histories=histories,
    )


def _count(events: int, *, is_bounded: bool) -> str:
    counted = humanize.counted(events, "event")
    return f"at least {counted}" if is_bounded else counted
