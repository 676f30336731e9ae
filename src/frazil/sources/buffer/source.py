"""Events of a buffer as a source: claimed in numbered batches, read by tasks, marked as processed.

A position is the number of a batch: a table has all of its events up to there. A batch is claimed
once and stays the same until it is acknowledged, so that whoever comes after a crash reads the very
events that were claimed, and the markers of the tables say which of them have those already.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from threading import Event
from typing import TYPE_CHECKING, Final

from frazil.errors import (
    ConfigError,
    PositionLostError,
    SchemaError,
    SourceReplacedError,
)
from frazil.hooks import SystemClock
from frazil.model.schema.table_layout import TableLayout
from frazil.model.source_table import SourceTable, TableBegin
from frazil.sources.buffer.database import BufferDatabase
from frazil.sources.buffer.dead_letters import expect_letters, keep_letters, settle_letters
from frazil.sources.buffer.event_queries import ClaimedEvents
from frazil.sources.buffer.learning import learn_shape
from frazil.sources.buffer.reader import EventReader, EventSplit
from frazil.sources.buffer.shape import (
    GrownShape,
    HistoryColumns,
    TableShape,
    decode_shape,
    encode_shape,
    grow_shape,
    parse_history,
    source_columns,
)
from frazil.sources.protocol import Batch, Limit, Split, TableFailure, TablePart

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from frazil.hooks import Clock
    from frazil.model.marker import Marker, Position
    from frazil.model.rejected_record import RejectedRecord
    from frazil.sources.buffer.claims import ClaimedTable
    from frazil.sources.buffer.database import PipelineState
    from frazil.sources.buffer.settings import BufferSettings
    from frazil.sources.protocol import Progress, TableProgress

LAYOUT: Final = TableLayout(partition_by=(("{prefix}date", "day({prefix}timestamp)"),))
# A task reads about so much at a time; more splits let tasks share the work fairly.
_SPLIT_EVENTS: Final = 50_000
_SPLIT_BYTES: Final = 16 * 2**20
_MOST_SPLITS: Final = 64
# What an event takes at least on its way into a file.
_EVENT_BYTES: Final = 128


class BufferSource:
    """The events of one buffer; lives on the driver."""

    def __init__(self, settings: BufferSettings, *, clock: Clock | None = None) -> None:
        self._settings = settings
        self._database = BufferDatabase(settings)
        self._clock = clock or SystemClock()
        self._woken = Event()
        self._identity: str | None = None
        # The last batch that was planned, or needs no planning; None before.
        self._planned: int | None = None
        self._followed: frozenset[str] = frozenset()
        # Whether the last claim left events behind, and whether it met tables that nobody knows.
        self._has_more = False
        self._awaits_tables = False

    @property
    def identity(self) -> str:
        """The database, and our tables in it that count batches."""
        if self._identity is None:
            self._identity = _identity(self._database.load_state())
        return self._identity

    @property
    def generation(self) -> int:
        """Numbers of batches are never given twice."""
        return 0

    def discover(self) -> tuple[SourceTable, ...]:
        """The tables that events were met of, and those whose columns the writer has kept."""
        histories = self._histories()
        sources = dict(histories.keys())
        sources |= {
            f"{each.schema}.{each.name}": each.source_id for each in self._database.load_seen()
        }
        return tuple(
            self._declared(name, sources[name], histories)
            for name in sorted(sources)
            if self.selects(name)
        )

    def explain_identity_change(
        self,
        before: str,
        now: str,
        *,
        was_gone: bool = False,  # noqa: ARG002 - a table is known by its source
    ) -> tuple[str, ...]:
        """A table is that of its source."""
        return () if before == now else (f"events of the source {now} took its name",)

    def selects(self, table: str) -> bool:
        """Whether its events are drained."""
        return self._settings.choice.selects(table)

    def prepare(
        self,
        tables: Collection[str],  # noqa: ARG002 - claims are of all of them
        since: Marker | None,
        reached: Collection[Position] = (),
    ) -> Position:
        """Take the locks and check that numbers mean what they meant."""
        state = self._database.load_state()
        self._identity = _identity(state)
        highest = max((_number(each) for each in reached), default=0)
        if since is not None:
            if since.source != self._identity:
                message = f"batches were counted in {since.source}, and this is {self._identity}."
                next_step = "name the buffer of before in source.dsn, or another pipeline"
                raise SourceReplacedError(message, next_step=next_step)
            highest = max(highest, _number(since.position))
        if highest > state.last_batch:
            message = (
                f"batch {highest} was captured, and the buffer has given no number behind "
                f"{state.last_batch}: it was restored to an earlier state."
            )
            raise SourceReplacedError(message, next_step="name another pipeline in the document")
        begin = state.acknowledged if since is None else _number(since.position)
        if begin < state.acknowledged:
            message = (
                f"batches behind {begin} are needed, and those up to {state.acknowledged} were "
                "marked as processed."
            )
            raise PositionLostError(message)
        if begin > state.acknowledged:
            # A process ended right before it did so.
            self.acknowledge(str(begin))
        self._planned = begin
        return str(begin)

    # --- planning ---

    def plan(self, progress: Progress, limit: Limit) -> Batch | None:
        """The next batch that a table needs, claimed now if there is none."""
        self._awaits_tables = False
        self._followed = frozenset(progress.tables)
        if progress.acknowledged is None:
            self._planned = self._database.load_state().last_batch + 1
            return None
        acknowledged = _number(progress.acknowledged)
        passed = acknowledged
        for number, claimed in self._open(acknowledged).items():
            needed = _needed(claimed, progress, acknowledged)
            if needed:
                return self._batch(number, needed, progress)
            passed = number
        if passed > max(acknowledged, self._planned or 0):
            # All that was planned of these is committed: a crash came before they were recorded.
            self._planned = passed
            return self._moving(passed)
        return self._claim(progress, acknowledged, limit)

    def _claim(self, progress: Progress, acknowledged: int, limit: Limit) -> Batch | None:
        if not progress.tables and self._open(acknowledged):
            # They wait for their tables.
            return None
        bounded = Limit(min(limit.rows, self._settings.claim_rows), limit.bytes)
        claim = self._database.claim(bounded)
        self._has_more = claim is not None and claim.is_full
        if claim is None:
            self._planned = max(self._planned or 0, self._database.load_state().last_batch)
            return None
        self._awaits_tables = any(self.selects(each) for each in claim.new_tables)
        claimed = self._open(acknowledged)[claim.batch]
        needed = _needed(claimed, progress, acknowledged)
        if needed:
            return self._batch(claim.batch, needed, progress)
        self._planned = claim.batch
        return self._moving(claim.batch) if progress.tables else None

    def _open(self, after: int) -> dict[int, list[ClaimedTable]]:
        found: dict[int, list[ClaimedTable]] = {}
        for each in self._database.load_open(after):
            found.setdefault(each.batch, []).append(each)
        return found

    def _batch(self, number: int, claimed: Sequence[ClaimedTable], progress: Progress) -> Batch:
        histories = self._histories()
        failures: list[TableFailure] = []
        parts: list[TablePart] = []
        splits: list[Split] = []
        for each in claimed:
            known = progress.tables[each.table]
            try:
                _require_one_source(each, claimed, known)
                grown = self._learn(each, known, histories)
            except (ConfigError, SchemaError) as error:
                failures.append(TableFailure(each.table, error))
                continue
            if not grown.shape.columns:
                # Nothing but TRUNCATE of a table that has no row yet.
                continue
            table = _described(each.table, each.source_id, grown.shape)
            parts.append(TablePart(table=table, start=known.position, goal=str(number)))
            splits += self._splits(each, grown)
        read = [part.table.name for part in parts]
        expect_letters(self._database.session(), self._settings.relations, number, read)
        self._planned = max(self._planned or 0, number)
        return Batch(
            reader=EventReader(self._settings.dsn),
            splits=tuple(splits),
            parts=tuple(parts),
            end=str(number),
            failures=tuple({each.table: each for each in failures}.values()),
            check=partial(self._database.require_session, self._database.sessions),
            keep_rejected=self._keep_rejected,
        )

    def _learn(
        self,
        claimed: ClaimedTable,
        known: TableProgress,
        histories: Mapping[tuple[str, str], HistoryColumns],
    ) -> GrownShape:
        return learn_shape(
            self._database.session(),
            self._events(claimed),
            decode_shape(known.shape, table=claimed.table),
            histories.get((claimed.table, claimed.source_id), HistoryColumns()),
            self._settings.tables(claimed.table),
        )

    def _events(
        self, claimed: ClaimedTable, first: int | None = None, last: int | None = None
    ) -> ClaimedEvents:
        return ClaimedEvents(
            relations=self._settings.relations,
            pipeline=self._settings.pipeline,
            batch=claimed.batch,
            source_id=claimed.source_id,
            schema=claimed.schema,
            name=claimed.name,
            first_id=claimed.first_id if first is None else first,
            last_id=claimed.last_id if last is None else last,
        )

    def _splits(self, claimed: ClaimedTable, grown: GrownShape) -> list[Split]:
        """Equal ranges of ids: most of them have about as many events."""
        wanted = max(claimed.events // _SPLIT_EVENTS, claimed.bytes // _SPLIT_BYTES)
        width = claimed.last_id - claimed.first_id + 1
        count = max(1, min(wanted, _MOST_SPLITS, width))
        bounds = [claimed.first_id + width * at // count for at in range(count + 1)]
        weight = max(claimed.bytes, claimed.events * _EVENT_BYTES) // count + 1
        return [
            Split(EventSplit(claimed.table, self._events(claimed, low, high - 1), grown), weight)
            for low, high in pairwise(bounds)
        ]

    def _moving(self, number: int) -> Batch:
        """A batch that brings nothing to the tables that are captured."""
        return Batch(reader=EventReader(self._settings.dsn), splits=(), parts=(), end=str(number))

    def _keep_rejected(self, records: Sequence[RejectedRecord]) -> None:
        settings = self._settings
        keep_letters(self._database.session(), settings.relations, records, settings.letters)

    def plan_copy(self, tables: Collection[str]) -> None:
        """Events that were processed are gone: no table is given again."""

    def _histories(self) -> dict[tuple[str, str], HistoryColumns]:
        return {
            (f"{each.schema}.{each.name}", each.source_id): parse_history(each.columns)
            for each in self._database.load_history()
        }

    def _declared(
        self, name: str, source: str, histories: Mapping[tuple[str, str], HistoryColumns]
    ) -> SourceTable:
        history = histories.get((name, source), HistoryColumns())
        try:
            shape = grow_shape(TableShape(), history, (), self._settings.tables(name)).shape
        except ConfigError:
            # Its first batch says so: one that waits for a copy would not hold its events.
            shape = TableShape()
        return _described(name, source, shape)

    # --- next to a batch ---

    def wait(self, seconds: float, limit: Limit) -> bool:
        """Until there are events for a full batch; they are looked for again and again."""
        if self._has_more or self._awaits_tables:
            return not self._woken.is_set() or self._forget_wake()
        rows = min(limit.rows, self._settings.claim_rows)
        ends = self._clock.monotonic() + seconds
        while not self._woken.is_set():
            if self._planned is not None and self._database.has_pending(rows):
                return True
            left = ends - self._clock.monotonic()
            if left <= 0:
                break
            self._clock.wait(self._woken, min(left, self._settings.poll_seconds))
        return self._forget_wake()

    def _forget_wake(self) -> bool:
        self._woken.clear()
        return False

    def wake(self) -> None:
        """Let ``wait`` return."""
        self._woken.set()

    def newest(self) -> Position:
        """The last batch, or the one that pending events will be in."""
        last = self._database.load_state().last_batch
        return str(last + 1 if self._database.has_pending() else last)

    def has_reached(self, position: Position) -> bool:
        """Whether no event that was there then waits to be planned."""
        is_settled = not (self._has_more or self._awaits_tables)
        return is_settled and self._planned is not None and self._planned >= _number(position)

    def kept_since(self, position: Position) -> int:  # noqa: ARG002 - as the protocol says
        """Events wait for a paused table as long as it takes: nothing else could give them."""
        return 0

    @property
    def reached(self) -> int | None:
        """The last batch that was planned."""
        return self._planned

    @property
    def followed(self) -> frozenset[str]:
        """The tables of the last plan."""
        return self._followed

    def received(self) -> None:
        """Nothing is received before it is planned."""

    @property
    def is_paused(self) -> bool:
        """Reading never waits."""
        return False

    def acknowledge(self, position: Position) -> None:
        """Mark the events of all batches up to this one as processed."""
        self._database.acknowledge(_number(position))
        settle_letters(self._database.session(), self._settings.relations)

    def close(self) -> None:
        """Forget what was planned, and let go of the locks."""
        self._planned = None
        self._has_more = self._awaits_tables = False
        self._database.close()


def _needed(
    claimed: Sequence[ClaimedTable], progress: Progress, acknowledged: int
) -> list[ClaimedTable]:
    """The tables of a batch that have not come there."""
    found = []
    for each in claimed:
        known = progress.tables.get(each.table)
        if known is not None:
            position = acknowledged if known.position is None else _number(known.position)
            if position < each.batch:
                found.append(each)
    return found


def _require_one_source(
    each: ClaimedTable, claimed: Sequence[ClaimedTable], known: TableProgress
) -> None:
    """Positions of two sources are not comparable: their rows must not be in one table."""
    sources = {other.source_id for other in claimed if other.table == each.table}
    sources |= {known.identity} if known.identity else set()
    if len(sources) > 1:
        message = f"the sources {', '.join(sorted(sources))} have a table of this name."
        next_step = "give each source a pipeline of its own, by source.source_ids"
        raise ConfigError(message, table=each.table, next_step=next_step)


def _described(name: str, source: str, shape: TableShape) -> SourceTable:
    return SourceTable(
        name=name,
        identity=source,
        shape=encode_shape(shape),
        columns=source_columns(shape),
        key=shape.key,
        highest_number=max((each.number for each in shape.columns), default=0),
        layout=LAYOUT,
        begins=TableBegin.STREAM,
    )


def _identity(state: PipelineState) -> str:
    return f"buffer://{state.database}/{state.identity}"


def _number(position: Position) -> int:
    if not isinstance(position, str):
        message = "positions of this source are numbers of batches"
        raise TypeError(message)
    return int(position)
