"""One batch from its splits to committed changelogs; the same for every source.

A table that fails is left out and reported; the rest of a batch succeeds together, or raises and is
repeated. A repeated batch skips the tables that were committed: their markers say so.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from frazil import errors
from frazil.clients.defects import defect_of_table
from frazil.clients.spark.pinned_session import pinned_session
from frazil.clients.spark.session import job_description
from frazil.clients.spark.task_errors import PAYLOAD, collect, running_tasks
from frazil.hooks import Failpoint, failpoint
from frazil.ingest.progress import ReadingProgress
from frazil.ingest.report import BatchReport, TableIngested
from frazil.ingest.task import IngestJob, over_bound
from frazil.ledger.rows import LedgerEntry
from frazil.model.command import command
from frazil.model.marker import MarkerRole, moved_from
from frazil.model.policy import OnWiden
from frazil.model.source_table import TableBegin
from frazil.sources.protocol import TableFailure
from frazil.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from pyspark.sql import SparkSession

    from frazil.clients.iceberg.write.data_file import WrittenFile
    from frazil.errors import FrazilError
    from frazil.hooks import Clock
    from frazil.ingest.captured_table import CapturedPosition, CapturedTable, Prepared
    from frazil.ingest.rejected_records import RejectedRecords
    from frazil.ingest.task import TaskOutcome
    from frazil.model.marker import Position
    from frazil.model.records.rejected_record import RejectedRecord
    from frazil.sources.protocol import Batch, PartitionFailure, Split, TablePart

_log = get_logger(__name__)

# Raised while something is done for one table, these are its own problem and do not pass by
# themselves; anything else concerns all tables.
OF_ONE_TABLE = (
    errors.ConfigError,
    errors.SchemaError,
    errors.MalformedChangeError,
    errors.MissingImageError,
    errors.MarkerLostError,
    errors.RolledBackError,
    errors.TableReplacedError,
    errors.TableNotFoundError,
    errors.ForeignChangeError,
)
# Below this a task costs more than it saves.
_TASK_BYTES = 4 * 2**20
# What every task may return of rejected records, however many tasks there are: a skewed batch has
# all of them in one.
_LEAST_REJECTED_BYTES = 4 * 2**20


@dataclass(slots=True)
class BatchResult:
    """The outcome of a batch: tables committed, tables that failed, tables to copy again.

    ``skipped`` are tables that wait for the next batch, because one of their partitions was
    ``stopped`` while it was read.
    """

    batch: str
    committed: dict[str, TableIngested] = field(default_factory=dict)
    prepared: dict[str, Prepared] = field(default_factory=dict)
    failures: dict[str, FrazilError] = field(default_factory=dict)
    reread: set[str] = field(default_factory=set)
    rejected: Mapping[tuple[str, str], int] = field(default_factory=dict)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    stopped: list[PartitionFailure] = field(default_factory=list)
    skipped: set[str] = field(default_factory=set)

    @property
    def left_out(self) -> set[str]:
        """Tables of the batch of which nothing is committed."""
        return {*self.failures, *self.reread, *self.skipped}

    def take_planned(self, failures: Iterable[TableFailure | PartitionFailure]) -> None:
        """What the source left out of the batch."""
        for each in failures:
            if isinstance(each, TableFailure):
                self.failures[each.table] = each.error
            else:
                self.stopped.append(each)

    def take_read(self, outcome: TaskOutcome) -> None:
        """What a task could not read."""
        for table, error in outcome.failures.items():
            self.failures.setdefault(table, error)
        self.stopped += outcome.stopped
        self.counts.update(outcome.counts)
        self.skipped |= {each.table for each in outcome.stopped}

    @property
    def pending(self) -> int:
        """Tables that have not committed yet."""
        return max(0, len(self.prepared) - len(self.committed))

    @property
    def restarted_at(self) -> Position:
        """The partitions of the tables that were committed, and where they are."""
        goals = (self.prepared[name].part.goal for name in self.committed)
        return {
            name: at for goal in goals if isinstance(goal, Mapping) for name, at in goal.items()
        }

    def report(
        self, acknowledged: Position | None, *, seconds: float, is_copy: bool = False
    ) -> BatchReport:
        """What came of it."""
        stopped = {each.partition: each.error for each in self.stopped}
        committed = self.committed
        return BatchReport(
            batch=self.batch,
            tables=tuple(self.committed.values()),
            acknowledged=acknowledged,
            seconds=seconds,
            is_copy=is_copy,
            failures=dict(self.failures),
            rejected=self.rejected,
            counts={each: count for each, count in self.counts.items() if each[0] in committed},
            stopped=stopped,
        )


def run_batch(
    session: SparkSession,
    batch: Batch,
    tables: Mapping[str, CapturedTable],
    *,
    result: BatchResult,
    clock: Clock,
    watch: Callable[[ReadingProgress], None],
    rejected: RejectedRecords,
) -> None:
    """Read, write and commit; nothing is recorded or acknowledged yet. Fills ``result``.

    ``watch`` is given the progress of a copy, which can be read while it runs. Records that are
    rejected are kept before any table commits. Raises FencedError when another process moves the
    markers, and everything that may pass.
    """
    failpoint(Failpoint.INGEST_PLANNED)
    result.take_planned(batch.failures)
    for part in batch.parts:
        _prepare(part, tables[part.table.name], result)
    began = clock.monotonic()
    most = rejected.most_bytes
    outcomes = _read(session, batch, result, clock=clock, watch=watch, most_rejected_bytes=most)
    for outcome in outcomes:
        result.take_read(outcome)
    batch.check()
    failpoint(Failpoint.INGEST_WRITTEN)
    reading = clock.monotonic() - began
    if records := _rejected(outcomes, result, most_bytes=most):
        result.rejected = rejected.keep(batch, records, name=result.batch)
    for table in result.prepared:
        if table not in result.left_out:
            _commit(table, tables[table], outcomes, result, clock=clock, reading=reading)
            failpoint(Failpoint.INGEST_COMMITTED)


def _prepare(part: TablePart, captured: CapturedTable, result: BatchResult) -> None:
    table = part.table.name
    if table in result.failures:
        return
    try:
        prepared = captured.prepare(part)
        widened = prepared.plan.widened if part.restart is None else ()
        if widened and captured.on_widen is OnWiden.STOP:
            result.failures[table] = _stopped_by_widening(table, widened)
            return
    except Exception as error:  # noqa: BLE001 - of one table, or raised again
        result.failures[table] = of_one_table(error, table, "preparing its changelog")
        return
    if widened and captured.on_widen is OnWiden.VERIFY and part.table.begins is TableBegin.COPY:
        # Values may have changed without a row being sent, and only reading all of them shows it.
        result.reread.add(table)
        return
    result.prepared[table] = prepared


def of_one_table(error: Exception, table: str, doing: str) -> errors.FrazilError:
    """The problem of this table alone; what concerns all tables is raised again."""
    return error if isinstance(error, OF_ONE_TABLE) else defect_of_table(error, table, doing)


def _stopped_by_widening(table: str, widened: Sequence[str]) -> errors.FrazilError:
    message = f"the type of {', '.join(widened)} was widened, and on_widen is stop."
    return errors.UnsupportedSchemaChangeError(
        message, table=table, next_step=command("resync", table)
    )


def _read(
    session: SparkSession,
    batch: Batch,
    result: BatchResult,
    *,
    clock: Clock,
    watch: Callable[[ReadingProgress], None],
    most_rejected_bytes: int,
) -> tuple[TaskOutcome, ...]:
    if not result.prepared or not batch.splits:
        return ()
    names = tuple(result.prepared)
    shares = _tasks(batch, cores=session.sparkContext.defaultParallelism)
    tasks = tuple(batch.join(each) for each in shares)
    job = IngestJob(
        reader=batch.reader,
        tasks=tasks,
        targets={name: each.target for name, each in result.prepared.items()},
        most_rejected_bytes=max(most_rejected_bytes // len(tasks), _LEAST_REJECTED_BYTES),
    )
    with ExitStack() as stack:
        if _is_copy(batch):
            size = sum(each.weight for each in batch.splits)
            progress = ReadingProgress(session.sparkContext, names, size=size, clock=clock)
            job = replace(job, gauge=progress.gauge)
            watch(progress)
            stack.enter_context(progress.logged())
        stack.enter_context(running_tasks(_named(names), "reading changes"))
        stack.enter_context(job_description(session, f"ingest {_named(names)}"))
        numbers = pinned_session(session).range(0, len(tasks), 1, len(tasks))
        return tuple(collect(numbers.mapInArrow(job.run_task, PAYLOAD)))


def _rejected(
    outcomes: Sequence[TaskOutcome], result: BatchResult, *, most_bytes: int
) -> list[RejectedRecord]:
    """What tables that did not fail have rejected; one that has too much fails."""

    def found() -> list[RejectedRecord]:
        records = (each for outcome in outcomes for each in outcome.rejected)
        return [each for each in records if each.table not in result.left_out]

    result.failures |= over_bound(found(), most_bytes)
    return found()


def _is_copy(batch: Batch) -> bool:
    return any(part.restart is not None for part in batch.parts)


def _tasks(batch: Batch, *, cores: int) -> tuple[tuple[Split, ...], ...]:
    """A task per core; of a copy as many as there are splits, so that progress shows.

    Where more would run at a time than may, their number is what bounds them.
    """
    may = batch.most_tasks or cores
    if _is_copy(batch) and cores <= may:
        return spread(batch.splits, most=len(batch.splits))
    return spread(batch.splits, most=min(cores, may))


def spread(splits: Sequence[Split], *, most: int) -> tuple[tuple[Split, ...], ...]:
    """The splits of each task: as many tasks as the bytes are worth, all about as heavy."""
    total = sum(each.weight for each in splits)
    count = max(1, min(most, len(splits), -(-total // _TASK_BYTES)))
    shares: list[list[Split]] = [[] for _ in range(count)]
    lightest = [(0, number) for number in range(count)]
    for split in sorted(splits, key=lambda each: -each.weight):
        weight, number = heapq.heappop(lightest)
        shares[number].append(split)
        heapq.heappush(lightest, (weight + split.weight, number))
    return tuple(tuple(each) for each in shares)


def _commit(
    table: str,
    captured: CapturedTable,
    outcomes: Sequence[TaskOutcome],
    result: BatchResult,
    *,
    clock: Clock,
    reading: float,
) -> None:
    prepared = result.prepared[table]
    files: list[WrittenFile] = []
    operations: dict[str, int] = {}
    for outcome in outcomes:
        if table in outcome.written:
            written = outcome.written[table]
            files.extend(written.files)
            for operation, count in written.operations.items():
                operations[operation] = operations.get(operation, 0) + count
    if not files and not prepared.must_be_committed:
        # All of it was in the changelog before.
        return
    began = clock.monotonic()
    try:
        receipt = captured.commit(prepared, files, batch=result.batch)
    except Exception as error:  # noqa: BLE001 - of one table, or raised again
        result.failures[table] = of_one_table(error, table, "committing its changelog")
        return
    snapshot = receipt.marker.snapshot
    result.committed[table] = TableIngested(
        table=table,
        changelog=captured.name,
        start=prepared.part.start,
        goal=receipt.marker.position,
        snapshot_id=None if snapshot is None else snapshot.id,
        operations=operations,
        file_sizes=tuple(file.size for file in files),
        seconds=reading + clock.monotonic() - began,
    )


def _named(tables: Sequence[str]) -> str:
    return tables[0] if len(tables) == 1 else f"{len(tables)} tables"


def position_if_known(
    table: Callable[[], CapturedTable], *, is_streaming: bool
) -> CapturedPosition | None:
    """The position of a table; None where an error that is reported later hides it."""
    try:
        return table().load_position()
    except errors.FrazilError as error:
        # A paused table has its own error already; what may pass is tried again.
        if is_streaming and not isinstance(error, OF_ONE_TABLE):
            raise
    except Exception as error:  # noqa: BLE001 - judged as a defect of its table when it is read
        _log.debug("position unknown", error=type(error).__name__)
    return None


def ledger_entries(result: BatchResult, now: datetime) -> tuple[LedgerEntry, ...]:
    """What the ledger says of the tables of a batch that were committed."""
    moves = {name: result.prepared[name].part for name in result.committed}
    return tuple(
        LedgerEntry(
            batch=result.batch,
            role=MarkerRole.INGEST,
            table=name,
            start=moved_from(done.start, moves[name].goal),
            goal=moves[name].goal,
            rows=done.rows,
            files=len(done.file_sizes),
            seconds=done.seconds,
            committed_at=now,
            note="; ".join(result.prepared[name].plan.changes) or None,
        )
        for name, done in result.committed.items()
    )
