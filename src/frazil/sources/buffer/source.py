"""Events of a buffer as a source: claimed in numbered batches, read by tasks, marked as processed.

A position is the number of a batch: a table has all of its events up to there. A batch is claimed
once and stays the same until it is acknowledged, so that whoever comes after a crash reads the very
events that were claimed, and the markers of the tables say which of them have those already.
"""

from __future__ import annotations

from functools import partial
from itertools import groupby, pairwise
from threading import Event
from typing import TYPE_CHECKING, Final

from frazil.errors import ConfigError, FrazilError, PositionLostError, SourceReplacedError
from frazil.hooks import SystemClock
from frazil.sources.buffer.database import (
    BufferDatabase,
    explain_source_change,
    parsed_histories,
)
from frazil.sources.buffer.dead_letters import expect_letters, keep_letters, settle_letters
from frazil.sources.buffer.marking import Marking
from frazil.sources.buffer.reading.event_queries import ClaimedEvents
from frazil.sources.buffer.reading.learning import LearningTable, learn_shapes
from frazil.sources.buffer.reading.reader import EventReader, EventSplit, EventTable
from frazil.sources.buffer.reading.shape import (
    HistoryColumns,
    TableShape,
    described_table,
    grow_shape,
)
from frazil.sources.protocol import Batch, Limit, Split, TableFailure, TablePart

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from frazil.hooks import Clock
    from frazil.model.marker import Marker, Position
    from frazil.model.records.rejected_record import RejectedRecord
    from frazil.model.source_table import SourceTable
    from frazil.sources.buffer.claims import ClaimedTable
    from frazil.sources.buffer.reading.shape import GrownShape
    from frazil.sources.buffer.settings import BufferSettings
    from frazil.sources.protocol import Progress, TableProgress

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
        self._marking = Marking(settings)
        self._clock = clock or SystemClock()
        self._woken = Event()
        self._identity: str | None = None
        # The last batch that was planned, or needs no planning; None before.
        self._planned: int | None = None
        self._followed: frozenset[str] = frozenset()
        # Whether the last claim left events behind, and whether it met tables that nobody knows.
        self._has_more = False
        self._awaits_tables = False
        # Whether the ledger may stay behind what is committed, because a table is held.
        self._may_be_held = False
        # The tables of the last batch, and how far each has come without a row that moved it.
        self._given: tuple[int, frozenset[str]] | None = None
        self._finished: dict[str, int] = {}

    @property
    def identity(self) -> str:
        """The database, and our tables in it that count batches."""
        if self._identity is None:
            self._identity = self._database.load_state().source
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
        return explain_source_change(before, now)

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
        self._identity = state.source
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
            self._database.acknowledge(begin)
            settle_letters(self._database.session(), self._settings.relations)
        self._planned = begin
        # A process that died may have left some unmarked that other tables held.
        self._may_be_held = True
        return str(begin)

    # --- planning ---

    def plan(self, progress: Progress, limit: Limit) -> Batch | None:
        """The next batch that a table needs, claimed now if there is none."""
        self._awaits_tables = False
        self._followed = frozenset(progress.tables)
        self._marking.raise_failure()
        self._note_finished(progress)
        if progress.acknowledged is None:
            self._planned = self._database.load_state().last_batch + 1
            self._may_be_held = False
            return None
        acknowledged = _number(progress.acknowledged)
        passed = acknowledged
        if self._may_be_held:
            self._settle_committed(progress, acknowledged)
        for number, claimed in self._open(acknowledged).items():
            needed = self._needed(claimed, progress, acknowledged)
            if needed:
                return self._batch(number, needed, progress)
            passed = number
        if passed > max(acknowledged, self._planned or 0):
            # All that was planned of these is committed: a crash came before they were recorded.
            self._planned = passed
            return self._moving(passed)
        return self._claim(progress, acknowledged, limit)

    def _note_finished(self, progress: Progress) -> None:
        """The last batch is finished, also for tables that it brought no row and did not move.

        All of a table's events may be dead letters. One that failed is not in the progress.
        """
        given, self._given = self._given, None
        if given is not None:
            number, tables = given
            self._finished |= dict.fromkeys(tables & progress.tables.keys(), number)

    def _needed(
        self, claimed: Sequence[ClaimedTable], progress: Progress, acknowledged: int
    ) -> list[ClaimedTable]:
        """The tables of a batch that have not come there."""
        found = []
        for each in claimed:
            known = progress.tables.get(each.table)
            if known is not None:
                position = acknowledged if known.position is None else _number(known.position)
                if max(position, self._finished.get(each.table, 0)) < each.batch:
                    found.append(each)
        return found

    def _settle_committed(self, progress: Progress, acknowledged: int) -> None:
        """Mark the events of tables that have them, while others hold their batches open.

        The markers of the tables say so: a process that dies before does it the next time.
        """
        self._marking.finish()
        is_held = False
        for number, claimed in self._open(acknowledged).items():
            tables = {each.table for each in claimed}
            needed = {each.table for each in self._needed(claimed, progress, acknowledged)}
            done = tables & progress.tables.keys() - needed
            # A batch that all of its tables have moves the ledger, unless one before it is held.
            is_held = is_held or done != tables
            if is_held and done:
                self._database.settle(number, sorted(done))
        settle_letters(self._database.session(), self._settings.relations)
        self._may_be_held = False

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
        needed = self._needed(claimed, progress, acknowledged)
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
        failures: dict[str, FrazilError] = {}
        wanted: list[ClaimedTable] = []
        for each in claimed:
            try:
                _require_one_source(each, claimed, progress.tables[each.table])
            except ConfigError as error:
                failures[each.table] = error
            else:
                wanted.append(each)
        learned = self._learn(number, wanted, progress)
        parts: list[TablePart] = []
        tables: list[EventTable] = []
        for each in wanted:
            grown = learned[each.table]
            if isinstance(grown, FrazilError):
                failures[each.table] = grown
            elif grown.shape.columns:
                table = described_table(each.table, each.source_id, grown.shape)
                start = progress.tables[each.table].position
                parts.append(TablePart(table=table, start=start, goal=str(number)))
                tables.append(
                    EventTable(
                        table=each.table,
                        source_id=each.source_id,
                        schema=each.schema,
                        name=each.name,
                        shape=grown,
                    )
                )
            # Else nothing but TRUNCATE of a table that has no row yet.
        read = [part.table.name for part in parts]
        expect_letters(self._database.session(), self._settings.relations, number, read)
        self._planned = max(self._planned or 0, number)
        self._may_be_held = True
        self._given = number, frozenset(each.table for each in claimed)
        return Batch(
            reader=EventReader(self._settings.dsn),
            splits=tuple(self._splits(number, wanted, tables)),
            parts=tuple(parts),
            end=str(number),
            failures=tuple(TableFailure(table, error) for table, error in failures.items()),
            check=partial(self._database.require_session, self._database.sessions),
            keep_rejected=self._keep_rejected,
        )

    def _learn(
        self, number: int, claimed: Sequence[ClaimedTable], progress: Progress
    ) -> dict[str, GrownShape | FrazilError]:
        if not claimed:
            return {}
        histories = self._histories()
        tables = [
            LearningTable(
                claimed=each,
                shape=progress.tables[each.table].shape,
                history=histories.get((each.table, each.source_id), HistoryColumns()),
                settings=self._settings.tables(each.table),
            )
            for each in claimed
        ]
        return learn_shapes(self._database.session(), self._events(number, claimed), tables)

    def _events(
        self,
        batch: int,
        claimed: Sequence[ClaimedTable],
        bounds: tuple[int, int] | None = None,
    ) -> ClaimedEvents:
        first = min(each.first_id for each in claimed)
        last = max(each.last_id for each in claimed)
        low, high = bounds or (first, last + 1)
        return ClaimedEvents(
            relations=self._settings.relations,
            pipeline=self._settings.pipeline,
            batch=batch,
            first_id=low,
            last_id=high - 1,
        )

    def _splits(
        self, number: int, claimed: Sequence[ClaimedTable], tables: Sequence[EventTable]
    ) -> Iterator[Split]:
        """Equal ranges of ids: most of them have about as many events.

        Tables are read together where they have about as many columns: a row of the answer has
        as many as the widest of them.
        """
        found = {each.table: each for each in claimed}

        def size(table: EventTable) -> int:
            return len(table.shape.shape.columns).bit_length()

        for _, group in groupby(sorted(tables, key=size), size):
            together = tuple(group)
            own = [found[each.table] for each in together]
            yield from self._ranges(number, own, together)

    def _ranges(
        self, number: int, claimed: Sequence[ClaimedTable], tables: tuple[EventTable, ...]
    ) -> Iterator[Split]:
        first = min(each.first_id for each in claimed)
        width = max(each.last_id for each in claimed) + 1 - first
        events, size = sum(each.events for each in claimed), sum(each.bytes for each in claimed)
        wanted = max(events // _SPLIT_EVENTS, size // _SPLIT_BYTES)
        count = max(1, min(wanted, _MOST_SPLITS, width))
        bounds = [first + width * at // count for at in range(count + 1)]
        weight = max(size, events * _EVENT_BYTES) // count + 1
        for each in pairwise(bounds):
            yield Split(EventSplit(self._events(number, claimed, each), tables), weight)

    def _moving(self, number: int) -> Batch:
        """A batch that brings nothing to the tables that are captured."""
        return Batch(reader=EventReader(self._settings.dsn), splits=(), parts=(), end=str(number))

    def _keep_rejected(self, records: Sequence[RejectedRecord]) -> None:
        settings = self._settings
        keep_letters(self._database.session(), settings.relations, records, settings.letters)

    def plan_copy(self, tables: Collection[str]) -> None:
        """Events that were processed are gone: no table is given again."""

    def _histories(self) -> dict[tuple[str, str], HistoryColumns]:
        return parsed_histories(self._database.load_history())

    def _declared(
        self, name: str, source: str, histories: Mapping[tuple[str, str], HistoryColumns]
    ) -> SourceTable:
        history = histories.get((name, source), HistoryColumns())
        try:
            shape = grow_shape(TableShape(), history, (), self._settings.tables(name)).shape
        except ConfigError:
            # Its first batch says so: one that waits for a copy would not hold its events.
            shape = TableShape()
        return described_table(name, source, shape)

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
        is_settled = not (self._has_more or self._awaits_tables or self._may_be_held)
        if not is_settled or self._planned is None or self._planned < _number(position):
            return False
        # Whoever asks is about to end: what cannot be marked is not to pass in silence.
        self._marking.finish()
        return True

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
        """Mark the events of all batches up to this one as processed, beside what comes next.

        Where the ledger stays behind, the tables that are not held are marked by the next plan.
        """
        number = _number(position)
        if self._planned is None or number >= self._planned:
            self._may_be_held = False
        self._marking.start(number)

    def close(self) -> None:
        """Forget what was planned, and let go of the locks."""
        self._planned = None
        self._has_more = self._awaits_tables = self._may_be_held = False
        self._given = None
        self._finished.clear()
        self._marking.close()
        self._database.close()


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


def _number(position: Position) -> int:
    if not isinstance(position, str):
        message = "positions of this source are numbers of batches"
        raise TypeError(message)
    return int(position)
