"""Keeps changelogs up to date with one source: changes as they come, and tables read whole.

Two threads may use it, one for each of the two. The order of a batch is always the same: every
table commits, the ledger commits, the source is acknowledged. A process may die between any two
of them; the next one asks the ledger and the tables, never its memory.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from frazil import errors
from frazil.hooks import Failpoint, SystemClock, SystemRandomness, failpoint
from frazil.ingest.batch_run import (
    BatchResult,
    ledger_entries,
    of_one_table,
    place_if_known,
    run_batch,
)
from frazil.ingest.captured_table import CapturedPosition, CapturedTable
from frazil.ingest.ledger_cache import LedgerCache, judging_loss
from frazil.ingest.planning.table_decisions import judge_tables
from frazil.ingest.report import BatchReport
from frazil.ingest.retrying_tables import RetryingTables
from frazil.ingest.state_log import log_paused, log_state, no_changelog, outlasted
from frazil.ledger.rows import position_text
from frazil.ledger.table_state import (
    Copying,
    Paused,
    Removed,
    ResyncRequired,
    Streaming,
    TableState,
)
from frazil.model.marker import Marker
from frazil.sources.protocol import Progress, TableProgress
from frazil.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pyspark.sql import SparkSession

    from frazil.clients.iceberg.lake import Lake
    from frazil.hooks import Clock, Randomness
    from frazil.ingest.progress import CopyProgress, ReadingProgress
    from frazil.ingest.settings import Captures, IngestSettings
    from frazil.ledger.table import Ledger
    from frazil.ledger.table_state import State
    from frazil.model.marker import Position
    from frazil.sources.protocol import Batch, Claim, Source

_log = get_logger(__name__)

_UUID_BYTES = 16


class Ingester:
    """One source, its changelogs, and the book of what was done; lives on the driver."""

    def __init__(
        self,
        session: SparkSession,
        lake: Lake,
        source: Source,
        ledger: Ledger,
        *,
        settings: IngestSettings,
        captures: Captures,
        claim: Claim | None = None,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        self._session = session
        self._lake = lake
        self._source = source
        self._settings = settings
        self._captures = captures
        self._turn = nullcontext if claim is None else claim.turn
        self._clock = clock or SystemClock()
        self._randomness = randomness or SystemRandomness()
        self._ledger_cache = LedgerCache(ledger, settings.pipeline)
        self._tables: dict[str, CapturedTable] = {}
        self._places: dict[str, CapturedPosition] = {}
        # Read whole at the moment: the source must keep what came since.
        self._being_read: set[str] = set()
        self._progress_of_whole: ReadingProgress | None = None
        self._walking: list[BatchResult] = []
        self._retrying = RetryingTables(settings.defect_attempts)
        self._is_started, self._retries_held = False, True

    @property
    def table_states(self) -> Mapping[str, TableState]:
        """How every table stands."""
        return dict(self._ledger_cache.table_states)

    @property
    def acknowledged(self) -> Position | None:
        """What the source was acknowledged to."""
        marker = self._ledger_cache.acknowledged
        return None if marker is None else marker.position

    def start(self) -> None:
        """Look at the ledger, the tables and the source; raises what keeps us from going on.

        What is read here may be relied on because nobody else works for the source by then.
        """
        with self._ledger_cache.lock, self._turn():
            if self._is_started:
                return
            self._ledger_cache.refresh()
            self._places.clear()
            self._tables.clear()
            # A new process tries again: that is when somebody may have acted.
            self._prepare_source(self._look(retries_held=self._retries_held))
            if self._retries_held:
                self._retrying.forget()
            self._is_started, self._retries_held = True, False

    def retry_held(self) -> None:
        """Try tables again that are held, with the next step: somebody says they were mended."""
        self._retries_held = True

    def stop(self) -> None:
        """Let go of the source; the next step begins again."""
        self._is_started = False
        self._source.close()

    def step(self) -> BatchReport | None:
        """The next changes; None when there are none yet."""
        try:
            if self._retries_held:
                self.stop()
            self.start()
            self._notice()
            progress = self._progress()
            with judging_loss(self._ledger_cache, self._notice):
                batch = self._source.plan(progress, self._settings.limit)
            if batch is None:
                if not progress.tables:
                    # No batch will have them looked at: there may be some by now.
                    self._look_again()
                return None
            began, result = self._clock.monotonic(), self._walk(batch)
            self._retrying.require_final_of(result)
            acknowledged = self._book_changes(result, batch, planned_for=progress.tables)
            failpoint(Failpoint.INGEST_RECORDED)
            if acknowledged is not None:
                self._source.acknowledge(acknowledged)
            failpoint(Failpoint.INGEST_ACKNOWLEDGED)
        except BaseException:
            # What was planned and not committed is asked for again, from what is committed.
            self.stop()
            raise
        return self._report(result, began=began)

    def copy_tables(self) -> BatchReport | None:
        """Some of the tables that are to be read from their first row; None when there are none."""
        self.start()
        wanted = self.tables_to_read
        if not wanted:
            self._end_reading()
            return None
        with self._ledger_cache.lock:
            joins = bool(wanted - self._being_read)
            self._being_read |= wanted
            kept_since = self.acknowledged
        try:
            if joins:
                # A moment before now may lie before what the source was allowed to forget.
                self._source.plan_copy(())
            batch = self._source.plan_copy(wanted)
            if batch is None:
                self._end_reading()
                return None
            began, result = self._clock.monotonic(), self._walk(batch)
            self._book_whole(result, kept_since=kept_since)
            self._retrying.require_headway(result)
        except BaseException:
            # The source may be another one by now: it is looked at again.
            self._is_started = False
            self._end_reading()
            raise
        return self._report(result, began=began, is_whole=True)

    @property
    def progress(self) -> CopyProgress | None:
        """How far the whole tables that are being read have come; None when there are none."""
        progress = self._progress_of_whole
        return None if progress is None else progress.now()

    @property
    def pending_commits(self) -> int:
        """Tables of the running batches that have not committed yet."""
        return sum(each.pending for each in tuple(self._walking))

    def _walk(self, batch: Batch) -> BatchResult:
        result = BatchResult(self._new_name())
        self._walking.append(result)
        try:
            self._walk_into(result, batch)
        finally:
            self._walking.remove(result)
        self._retrying.count(result)
        return result

    def _walk_into(self, result: BatchResult, batch: Batch) -> None:
        run_batch(
            self._session,
            batch,
            {part.table.name: self._table(part.table.name) for part in batch.parts},
            result=result,
            clock=self._clock,
            watch=self._watch,
        )

    def _watch(self, progress: ReadingProgress) -> None:
        self._progress_of_whole = progress

    @property
    def tables_to_read(self) -> set[str]:
        """Tables that are to be read whole."""
        return {
            name
            for name, each in self._ledger_cache.table_states.items()
            if each.state == Copying()
        }

    def close(self) -> None:
        """Let go of everything."""
        self.stop()
        self._end_reading()

    # --- what is known ---

    def _table(self, name: str) -> CapturedTable:
        if name not in self._tables:
            self._tables[name] = CapturedTable(
                self._lake,
                self._captures(name),
                pipeline=self._settings.pipeline,
                source=self._source.identity,
            )
        return self._tables[name]

    def _notice(self) -> None:
        """Take up what somebody else wrote in the ledger: a resync, for instance."""
        with self._ledger_cache.lock:
            if self._ledger_cache.refresh():
                self._places.clear()

    def _progress(self) -> Progress:
        with self._ledger_cache.lock:
            known = {}
            for name, standing in self._live().items():
                place = self._place(name)
                if place is not None:
                    known[name] = TableProgress(place.position, standing.identity, place.shape)
            return Progress(acknowledged=self.acknowledged, tables=known)

    def _live(self) -> dict[str, TableState]:
        return {
            name: each
            for name, each in self._ledger_cache.table_states.items()
            if isinstance(each.state, Streaming)
        }

    def _place(self, name: str) -> CapturedPosition | None:
        """Where a live table stands; one that cannot tell is held."""
        if name not in self._places:
            try:
                place = self._table(name).load_place()
            except Exception as error:  # noqa: BLE001 - of one table, or raised again
                trouble = of_one_table(error, name, "reading its marker")
                self._retrying.require_final(name, trouble)
                self._hold(name, trouble)
                return None
            if place is None:
                self._hold(name, no_changelog(name))
                return None
            self._places[name] = place
        return self._places[name]

    def _hold(self, name: str, error: errors.FrazilError) -> None:
        log_paused(name, error)
        held = self._standing(name, Paused(self._position_text(), error.told))
        self._ledger_cache.note([held], batch=self._new_name())

    def _standing(self, name: str, state: State) -> TableState:
        return TableState(
            table=name, identity=self._ledger_cache.table_states[name].identity, state=state
        )

    def _position_text(self) -> str:
        return "" if self.acknowledged is None else position_text(self.acknowledged)

    # --- the source ---

    def _look(self, *, retries_held: bool = False) -> tuple[TableState, ...]:
        found = {each.name: each for each in self._source.discover()}
        changed = judge_tables(
            self._ledger_cache.table_states,
            found,
            selects=self._source.selects,
            explain_identity_change=self._source.explain_identity_change,
            position=self._position_text(),
            retries_held=retries_held,
        )
        for each in changed:
            log_state(each, found.get(each.table))
        return changed

    def _look_again(self) -> None:
        with self._ledger_cache.lock:
            changed = self._look()
            if changed:
                self._ledger_cache.note(changed, batch=self._new_name())

    def _prepare_source(self, changed: Sequence[TableState]) -> None:
        """Let the source keep what these tables need; then write down how they stand.

        In this order: what was seen at a source that is refused is not written down.
        """
        table_states = {**self._ledger_cache.table_states, **{each.table: each for each in changed}}
        names = [name for name, each in table_states.items() if not isinstance(each.state, Removed)]
        since = self._ledger_cache.acknowledged
        if self._counts_nothing([table_states[name] for name in names]):
            # The source may begin wherever it is.
            since = None
        try:
            with judging_loss(self._ledger_cache, self._notice):
                position = self._source.prepare(names, since, self._reached(table_states))
        except errors.PositionLostError:
            if not self._settings.resyncs_lost:
                raise
            # Written down before the source begins elsewhere: a gap is never silent.
            changed = [
                replace(each, state=Copying()) if name in names else each
                for name, each in table_states.items()
            ]
            self._ledger_cache.note(changed, batch=self._new_name())
            since, position, changed = None, self._source.prepare(names, None), ()
        if changed:
            self._ledger_cache.note(changed, batch=self._new_name())
        if since is None:
            self._begin_at(position)
        elif since.epoch != self._source.generation:
            # Before any table moves on it: what a table has is of this generation or before.
            self._ledger_cache.move(
                self._marker(position, batch=self._new_name(), witness=since.witness)
            )

    def _reached(self, table_states: Mapping[str, TableState]) -> list[Position]:
        """Where tables are whose rows stay; what keeps one from telling is told when it is read."""
        for name, each in table_states.items():
            if isinstance(each.state, Streaming | Paused) and name not in self._places:
                is_live = isinstance(each.state, Streaming)
                place = place_if_known(partial(self._table, name), is_live=is_live)
                if place is not None:
                    self._places[name] = place
        return [each.position for each in self._places.values()]

    def _counts_nothing(self, table_states: Sequence[TableState]) -> bool:
        """Whether every table is to be read from its first row, and none is being read yet."""
        states = [each.state for each in table_states]
        return not self._being_read and all(isinstance(each, Copying) for each in states)

    def _begin_at(self, position: Position) -> None:
        goal, known = (
            self._marker(position, batch=self._new_name()),
            self._ledger_cache.acknowledged,
        )
        at = goal.source, goal.epoch, goal.position, goal.witness
        if known is None or (known.source, known.epoch, known.position, known.witness) != at:
            self._ledger_cache.restart_at(goal)

    def _marker(self, position: Position, *, batch: str, witness: str | None = None) -> Marker:
        return Marker(
            pipeline=self._settings.pipeline,
            source=self._source.identity,
            position=position,
            batch=batch,
            epoch=self._source.generation,
            witness=witness,
        )

    # --- booking ---

    def _book_changes(
        self, result: BatchResult, batch: Batch, *, planned_for: Collection[str]
    ) -> Position | None:
        """Write the batch down; what may be acknowledged after it.

        The batch has changes of the tables it was ``planned_for``. A table that has become live
        since is not among them, and needs what it left out.
        """
        with self._ledger_cache.lock:
            # Somebody may have asked for a resync since the batch was planned.
            self._notice()
            self._take_places(result)
            # Before every acknowledgement: what the source does not announce is found here.
            looked = {each.table: each for each in self._look()}
            table_states = {**looked, **self._troubled(result), **self._reread(result)}
            table_states |= self._past_bound(table_states, batch.end)
            holds = self._being_read or any(
                isinstance(each.state, Paused)
                or (isinstance(each.state, Streaming) and each.table not in planned_for)
                for each in {**self._ledger_cache.table_states, **table_states}.values()
            )
            known = self._ledger_cache.acknowledged
            stays = known is not None and (holds or batch.end is None)
            goal = known.position if known is not None and stays else batch.end
            witness = batch.witness or (None if known is None else known.witness)
            if goal is None:
                return None
            self._ledger_cache.move(
                self._marker(goal, batch=result.batch, witness=witness),
                tuple(table_states.values()),
                ledger_entries(result, self._clock.now()),
            )
            return goal

    def _book_whole(self, result: BatchResult, *, kept_since: Position | None) -> None:
        with self._ledger_cache.lock:
            self._notice()
            if self.acknowledged != kept_since:
                # The position stays where it is for as long as tables are read: it began anew.
                message = "the source began to keep changes elsewhere while tables were read."
                raise errors.SourceUnavailableError(message)
            self._take_places(result)
            table_states = [
                TableState(
                    table=name,
                    identity=result.prepared[name].part.table.identity,
                    state=Streaming(),
                )
                for name in result.committed
            ]
            # What may pass leaves the table where it is: to be read.
            table_states += [
                self._standing(name, Copying(error.told))
                for name, error in result.troubles.items()
                if name in self._ledger_cache.table_states
                and not self._retrying.may_pass(name, error)
            ]
            entries = ledger_entries(result, self._clock.now())
            self._ledger_cache.note(table_states, entries, batch=result.batch)
            self._being_read -= {each.table for each in table_states}

    def _troubled(self, result: BatchResult) -> dict[str, TableState]:
        at = self._position_text()
        for name, error in result.troubles.items():
            log_paused(name, error)
        return {
            name: self._standing(name, Paused(at, error.told))
            for name, error in result.troubles.items()
            if name in self._live()
        }

    def _reread(self, result: BatchResult) -> dict[str, TableState]:
        for name in result.reread:
            _log.info("table is read again, because a type was widened", table=name)
        return {
            name: self._standing(name, Copying()) for name in result.reread & self._live().keys()
        }

    def _past_bound(
        self, changed: Mapping[str, TableState], end: Position | None
    ) -> dict[str, TableState]:
        """Held tables for which the source has kept enough: it goes on without them.

        What was not read yet is kept for everybody, and while tables are copied for those.
        """
        held = {
            each.table: each.state
            for each in {**self._ledger_cache.table_states, **changed}.values()
            if isinstance(each.state, Paused)
        }
        if not held or self.acknowledged is None or self._being_read or end is None:
            return {}
        kept = self._source.kept_since(self.acknowledged) - self._source.kept_since(end)
        if kept <= self._settings.held_bytes:
            return {}
        at = self._position_text()
        forgotten = {
            name: self._standing(name, ResyncRequired(at, outlasted(state)))
            for name, state in held.items()
        }
        for each in forgotten.values():
            log_state(each)
        return forgotten

    def _take_places(self, result: BatchResult) -> None:
        for name, done in result.committed.items():
            prepared = result.prepared[name]
            self._places[name] = CapturedPosition(
                position=done.goal, epoch=prepared.epoch, shape=prepared.part.table.shape
            )

    def _end_reading(self) -> None:
        with self._ledger_cache.lock:
            self._being_read.clear()
            self._progress_of_whole = None
        self._source.plan_copy(())

    def _report(self, result: BatchResult, *, began: float, is_whole: bool = False) -> BatchReport:
        return BatchReport(
            batch=result.batch,
            tables=tuple(result.committed.values()),
            acknowledged=self.acknowledged,
            seconds=self._clock.monotonic() - began,
            is_whole=is_whole,
            troubles=dict(result.troubles),
        )

    def _new_name(self) -> str:
        return str(UUID(bytes=self._randomness.token(_UUID_BYTES), version=4))
