"""Keeps changelogs up to date with one source: ``copy_tables`` copies, ``step`` streams.

Each may have its own thread; what they share is used under the ledger's lock. The order of a batch:
tasks write files, every table commits them with its marker, the ledger commits, and, for changes,
the source is acknowledged. A process may die between any two of them; the next one reads the ledger
and the tables, never its memory.

While tables (``ledger/table_state.py``) are copied, paused or gone, the source is not acknowledged
any further; for those paused or gone, up to ``held_bytes``. Of a source with partitions only theirs
are held, and several processes may work for it at a time: each moves its own partitions of a table
and of the ledger, and plans again when it was overtaken.
"""

from __future__ import annotations

from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from frazil import errors
from frazil.hooks import Failpoint, SystemClock, SystemRandomness, failpoint
from frazil.ingest.batch_run import BatchResult, ledger_entries, of_one_table, run_batch
from frazil.ingest.captured_table import CapturedTable
from frazil.ingest.ledger_cache import LedgerCache, confirming_loss, planning_again
from frazil.ingest.opened_tables import OpenedTables
from frazil.ingest.planning.acknowledgement import plan_acknowledgement
from frazil.ingest.planning.table_decisions import judge_tables, plan_needs
from frazil.ingest.rejected_records import RejectedRecords
from frazil.ingest.retrying_tables import RetryingTables, StoppedPartitions
from frazil.ingest.state_log import (
    log_paused,
    log_state,
    no_changelog,
    require_resync,
    states_after,
    states_after_copy,
)
from frazil.ledger.rows import brief_position
from frazil.ledger.table_state import Copying, Gone, Paused, Streaming, TableState
from frazil.model.cause import Cause
from frazil.model.marker import Marker
from frazil.sources.protocol import Progress, TableProgress
from frazil.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import UnionType

    from pyspark.sql import SparkSession

    from frazil.clients.iceberg.lake import Lake
    from frazil.hooks import Clock, Randomness
    from frazil.ingest.progress import CopyProgress, ReadingProgress
    from frazil.ingest.report import BatchReport
    from frazil.ingest.settings import Captures, IngestSettings
    from frazil.ledger.table import Ledger
    from frazil.ledger.table_state import State
    from frazil.model.marker import Position
    from frazil.sources.protocol import Batch, Claim, Source

_log = get_logger(__name__)

# How often states of tables are decided again because another process wrote some meanwhile.
_LEDGER_ATTEMPTS = 3


class Ingester:
    """One source, its changelogs and its ledger; lives on the driver."""

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
        self._session, self._lake, self._source = session, lake, source
        self._settings, self._captures = settings, captures
        self._turn = nullcontext if claim is None else claim.turn
        self._clock = clock or SystemClock()
        self._randomness = randomness or SystemRandomness()
        self._ledger = LedgerCache(ledger, settings.pipeline)
        self._tables = OpenedTables(self._new_table)
        self._rejected = RejectedRecords(lake, source, settings, self._clock)
        self._obstacles_met: dict[str, Cause] = {}
        self._being_copied: set[str] = set()  # The source must keep what came since.
        self._copy_progress: ReadingProgress | None = None
        self._running: list[BatchResult] = []
        self._retrying = RetryingTables(settings.defect_attempts, settings.limit, settings.may_pass)
        self._stopped = StoppedPartitions()
        self._is_started, self._retries_paused = False, True
        self._released: Position | None = None

    @property
    def table_states(self) -> Mapping[str, TableState]:
        """Of every table."""
        return dict(self._ledger.table_states)

    @property
    def acknowledged(self) -> Position | None:
        """What the source was acknowledged to."""
        return self._ledger.position

    @property
    def stopped_partitions(self) -> Mapping[str, errors.FrazilError]:
        """Partitions that failed here, and why."""
        return self._stopped.errors

    def start(self) -> None:
        """Load the ledger, the tables and the source; raises what prevents a start.

        What is read here stays valid: no other process works for the source or these partitions.
        """
        with planning_again(self._ledger), self._ledger.lock, self._turn():
            if self._is_started:
                return
            self._ledger.refresh()
            self._tables.forget()
            # A new process tries again: an operator may have acted.
            self._prepare_source(self._check_tables(retries_paused=self._retries_paused))
            if self._retries_paused:
                self._retrying.forget()
                self._stopped.forget()
            self._is_started, self._retries_paused = True, False

    def retry_paused(self) -> None:
        """Try paused tables again with the next step: an operator says they were repaired."""
        self._retries_paused = True

    def stop(self) -> None:
        """Let go of the source; the next step begins again."""
        self._is_started = False
        self._source.close()

    def step(self) -> BatchReport | None:
        """The next changes; None when there are none yet."""
        with planning_again(self._ledger):
            return self._step()

    def _step(self) -> BatchReport | None:
        try:
            if self._retries_paused:
                self.stop()
            self.start()
            self._notice()
            progress = self._progress()
            with confirming_loss(self._ledger, self._notice):
                batch = self._source.plan(progress, self._retrying.limit)
                self._tables.confirm_gaps(batch, progress)
            if batch is None:
                if not progress.tables:
                    # No batch will check for tables: there may be some by now.
                    self._check_tables_again()
                return None
            began, result = self._clock.monotonic(), self._run(batch)
            if result.skipped:
                self._source.close()  # Planned again, without what stopped them.
            self._retrying.require_final_of(result)
            acknowledged = self._record_changes(result, batch, progress)
            failpoint(Failpoint.INGEST_RECORDED)
            if acknowledged is not None:
                self._source.acknowledge(acknowledged)
            failpoint(Failpoint.INGEST_ACKNOWLEDGED)
        except BaseException as error:
            self._retrying.count_failure(error)
            # What was planned and not committed is planned again, from what is committed.
            self.stop()
            raise
        return result.report(acknowledged, seconds=self._clock.monotonic() - began)

    def copy_tables(self) -> BatchReport | None:
        """Some of the tables that are to be read from their first row; None when there are none."""
        self.start()
        wanted = self.tables_to_copy
        if not wanted:
            self._end_copy()
            return None
        with self._ledger.lock:
            joins, kept_since = bool(wanted - self._being_copied), self.acknowledged
            self._being_copied |= wanted
        try:
            if joins:
                # A moment before now may lie before what the source was allowed to forget.
                self._source.plan_copy(())
            batch = self._source.plan_copy(wanted)
            if batch is None:
                self._end_copy()
                return None
            with planning_again(self._ledger):
                began, result = self._clock.monotonic(), self._run(batch)
                self._record_copy(result, kept_since=kept_since)
            self._retrying.require_progress(result)
        except BaseException:
            # The source may be another one by now: it is checked again.
            self._is_started = False
            self._end_copy()
            raise
        seconds = self._clock.monotonic() - began
        return result.report(self.acknowledged, seconds=seconds, is_copy=True)

    @property
    def progress(self) -> CopyProgress | None:
        """The progress of the copy that is running; None when there is none."""
        progress = self._copy_progress
        return None if progress is None else progress.now()

    @property
    def pending_commits(self) -> int:
        """Tables of the running batches that have not committed yet."""
        return sum(each.pending for each in tuple(self._running))

    def _run(self, batch: Batch) -> BatchResult:
        result = BatchResult(self._new_name())
        self._stopped.resume(batch.resumed)
        self._running.append(result)
        try:
            run_batch(
                self._session,
                batch,
                {part.table.name: self._tables.table(part.table.name) for part in batch.parts},
                result=result,
                clock=self._clock,
                watch=self._watch,
                rejected=self._rejected,
            )
        finally:
            self._running.remove(result)
        self._retrying.count(result)
        self._stopped.take(result.stopped)
        return result

    def _watch(self, progress: ReadingProgress) -> None:
        self._copy_progress = progress

    @property
    def tables_to_copy(self) -> set[str]:
        """Tables that are to be copied."""
        states = self._ledger.table_states
        # With a cause, the copy failed and waits for an operator.
        return {name for name, each in states.items() if each.state == Copying()}

    def follow_states(self, notify: Callable[[], None]) -> None:
        """Call this, in any thread, when states of tables have changed; the last one counts."""
        self._ledger.on_change = notify

    def close(self) -> None:
        """Let go of everything."""
        self.stop()
        self._end_copy()

    # --- what is known ---

    def _new_table(self, name: str) -> CapturedTable:
        return CapturedTable(
            self._lake,
            self._captures(name),
            pipeline=self._settings.pipeline,
            source=self._source.identity,
        )

    def _notice(self) -> None:
        """Apply what another process wrote in the ledger: a resync, for instance."""
        with self._ledger.lock:
            if self._ledger.refresh():
                self._tables.forget_positions()

    def _progress(self) -> Progress:
        with self._ledger.lock:
            states = tuple(self._ledger.table_states.values())
            streaming = [each for each in states if isinstance(each.state, Streaming)]
            known = {each.table: self._table_progress(each) for each in streaming}
            tables = {name: each for name, each in known.items() if each is not None}
            stopped = self._stopped.offsets(tables)
            return Progress(acknowledged=self.acknowledged, tables=tables, stopped=stopped)

    def _table_progress(self, state: TableState) -> TableProgress | None:
        """The progress of a streaming table; one whose marker cannot be read is paused."""
        name = state.table
        try:
            position = self._tables.load_position(name, is_new=not state.identity)
        except Exception as error:  # noqa: BLE001 - of one table, or raised again
            failure = of_one_table(error, name, "reading its marker")
            self._retrying.require_final(name, failure)
            self._pause(name, failure)
            return None
        if position is not None:
            return TableProgress(position.position, state.identity, position.shape)
        if not state.identity:
            # It begins live, and nothing of it was captured yet.
            return TableProgress(None, "", "")
        self._pause(name, no_changelog(name))
        return None

    def _pause(self, name: str, error: errors.FrazilError) -> None:
        cause = Cause.of(error)
        log_paused(name, cause)
        paused = Paused(brief_position(self.acknowledged), cause)
        states = [replace(self._ledger.table_states[name], state=paused)]
        self._ledger.record(states, batch=self._new_name())

    # --- the source ---

    def _check_tables(self, *, retries_paused: bool = False) -> tuple[TableState, ...]:
        found = {each.name: each for each in self._source.discover()}
        self._tables.layouts = {name: each.layout for name, each in found.items()}
        changed = judge_tables(
            self._ledger.table_states,
            found,
            selects=self._source.selects,
            explain_identity_change=self._source.explain_identity_change,
            position=brief_position(self.acknowledged),
            retries_paused=retries_paused,
            obstacles_met=self._obstacles_met,
        )
        blocked = {name: it.obstacle for name, it in found.items() if it.obstacle is not None}
        self._obstacles_met |= {name: Cause.of(each) for name, each in blocked.items()}
        for each in changed:
            log_state(each)
        return changed

    def _check_tables_again(self) -> None:
        """Without a batch: for tables to capture, and for log that is kept too long."""
        with self._ledger.lock:
            self._notice()
            changed = self._check_tables()
            if changed:
                self._ledger.record(changed, batch=self._new_name())
            is_bounded = not self._ledger.is_shared
            releases = not self._has(Streaming, {}) and (
                (is_bounded and self._holds_too_much(self._source.newest()))
                # Without a stream, nothing else repeats an acknowledgement that failed.
                or not (self._released == self.acknowledged or self.tables_to_copy)
            )
        if releases:
            self._release_log()

    def _release_log(self) -> None:
        """Acknowledge what the ledger says while no table streams, and what exceeds the bound."""
        with self._ledger.lock, self._turn():
            # No stream would notice that this is another server, or that another process works.
            self._notice()
            self._prepare_source(())
            end = self._source.newest()
            if self._has(Streaming, {}):
                return
            if self._holds_too_much(end):
                goal = self._marker(end, batch=self._new_name())
                given_up = tuple(self._give_up_paused({}).values())
                self._ledger.move(goal, given_up, unless_written=True)
            released = self.acknowledged
        if released is not None:
            self._source.acknowledge(released)
        self._released = released

    def _prepare_source(self, changed: Sequence[TableState]) -> None:
        """Let the source keep what these tables need; then record their states.

        In this order: what was seen at a source that is refused is not written down.
        """
        needs = plan_needs(
            {**self._ledger.table_states, **{each.table: each for each in changed}},
            self._ledger.acknowledged,
            is_copying=bool(self._being_copied),
        )
        try:
            with confirming_loss(self._ledger, self._notice):
                position = self._source.prepare(
                    needs.tables, needs.since, self._tables.load_reached(needs.table_states)
                )
        except errors.PositionLostError:
            if not self._settings.resyncs_lost:
                raise
            # Written down before the source begins elsewhere: a gap is never silent.
            needs = needs.after_loss()
            self._ledger.record(tuple(needs.table_states.values()), batch=self._new_name())
            position, changed = self._source.prepare(needs.tables, needs.since), ()
        if changed:
            self._ledger.record(changed, batch=self._new_name())
        if needs.since is None:
            self._ledger.restart_at(self._marker(position, batch=self._new_name()))
        elif needs.since.epoch != self._source.generation:
            # Before any table moves on it: what a table has is of this generation or before.
            stays: Position = {} if self._ledger.is_shared else position
            goal = self._marker(stays, batch=self._new_name(), witness=self._ledger.witness)
            self._ledger.move(goal)

    def _marker(self, position: Position, *, batch: str, witness: str | None = None) -> Marker:
        return Marker(
            pipeline=self._settings.pipeline,
            source=self._source.identity,
            position=position,
            batch=batch,
            epoch=self._source.generation,
            witness=witness,
        )

    # --- recording ---

    def _record_changes(
        self, result: BatchResult, batch: Batch, progress: Progress
    ) -> Position | None:
        """Write the batch down; what may be acknowledged after it.

        States that were decided before another process wrote some are decided again.
        """
        for _ in range(_LEDGER_ATTEMPTS if self._ledger.is_shared else 0):
            with suppress(errors.FencedError):
                return self._try_recording(result, batch, progress)
        return self._try_recording(result, batch, progress)

    def _try_recording(
        self, result: BatchResult, batch: Batch, progress: Progress
    ) -> Position | None:
        """The batch has changes of the tables in ``progress``.

        A table that has become streaming since is not among them, and needs what it left out.
        """
        with self._ledger.lock:
            # A resync may have been requested since the batch was planned.
            self._notice()
            self._tables.take(result)
            # Before every acknowledgement: what the source does not announce is found here.
            checked = {each.table: each for each in self._check_tables()}
            known = self._ledger.table_states
            table_states = states_after(
                result, known, checked, position=brief_position(self.acknowledged)
            )
            if self._has(Paused | Gone, table_states) and self._holds_too_much(batch.end):
                table_states |= self._give_up_paused(table_states)
            goal = plan_acknowledgement(
                batch,
                self.acknowledged,
                {**known, **table_states},
                left_out=result.left_out,
                planned_for=progress.tables,
                is_copying=bool(self._being_copied),
            )
            if goal is None:
                return None
            self._ledger.move(
                self._marker(
                    goal, batch=result.batch, witness=batch.witness or self._ledger.witness
                ),
                tuple(table_states.values()),
                ledger_entries(result, self._clock.now()),
                planned_on=progress.acknowledged,
            )
            return goal

    def _record_copy(self, result: BatchResult, *, kept_since: Position | None) -> None:
        with self._ledger.lock:
            self._notice()
            if self.acknowledged != kept_since and not self._ledger.is_shared:
                # The position stays where it is for as long as tables are read: it began again.
                message = "the source began to keep changes elsewhere while tables were read."
                raise errors.SourceUnavailableError(message)
            self._tables.take(result)
            known, may_pass = self._ledger.table_states, self._retrying.may_pass
            table_states = states_after_copy(result, known, may_pass)
            entries = ledger_entries(result, self._clock.now())
            if self._ledger.is_shared:
                # What a table needs again from its oldest change on is not acknowledged any more.
                goal = self._marker(result.restarted_at, batch=result.batch)
                self._ledger.move(goal, table_states, entries)
            else:
                self._ledger.record(table_states, entries, batch=result.batch, unless_moved=True)
            self._being_copied -= {each.table for each in table_states}

    def _holds_too_much(self, end: Position | None) -> bool:
        """Whether the source has kept enough for paused tables, of what others have read."""
        if self.acknowledged is None or self._being_copied or end is None or self._ledger.is_shared:
            return False
        kept = self._source.kept_since(self.acknowledged) - self._source.kept_since(end)
        return kept > self._settings.held_bytes

    def _has(self, kind: type[State] | UnionType, changed: Mapping[str, TableState]) -> bool:
        table_states = {**self._ledger.table_states, **changed}.values()
        return any(isinstance(each.state, kind) for each in table_states)

    def _give_up_paused(self, changed: Mapping[str, TableState]) -> dict[str, TableState]:
        return require_resync(
            {**self._ledger.table_states, **changed}, brief_position(self.acknowledged)
        )

    def _end_copy(self) -> None:
        with self._ledger.lock:
            self._being_copied.clear()
        self._copy_progress = None
        self._source.plan_copy(())

    def _new_name(self) -> str:
        return str(UUID(bytes=self._randomness.token(16), version=4))
