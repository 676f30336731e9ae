"""A Spark task of an ingest: read splits, write the rows of each table, report to the driver."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from frazil.clients.defects import defect_of_table
from frazil.clients.iceberg.write.task_writer import TaskWriter
from frazil.clients.spark.task_errors import carries_errors, payload
from frazil.errors import FrazilError, MalformedChangeError, SchemaError, SourceError
from frazil.hooks import SystemClock, SystemRandomness
from frazil.model.humanize import size
from frazil.model.records.rejected_record import RejectedRecord
from frazil.sources.protocol import ChangeColumn, PartitionFailure, RecordsCounted, TableRows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from frazil.clients.iceberg.write.data_file import WrittenFile
    from frazil.clients.iceberg.write.row_order import RowOrder
    from frazil.clients.iceberg.write.write_target import WriteTarget
    from frazil.ingest.changelog_rows import RowLayout
    from frazil.ingest.progress import TaskGauge
    from frazil.sources.protocol import Split, SplitReader


@dataclass(frozen=True, slots=True)
class TableTarget:
    """Where the rows of one table go; with an ``order``, those that come together are sorted."""

    layout: RowLayout
    target: WriteTarget
    order: RowOrder | None = None

    def lay_out(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """As the table has them."""
        laid_out = self.layout.lay_out(rows)
        return laid_out if self.order is None else laid_out.take(self.order.of(laid_out))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableWritten:
    """What a task wrote for one table: files, and rows by operation."""

    files: tuple[WrittenFile, ...]
    operations: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOutcome:
    """What a task wrote, which tables and partitions failed, and records that are no rows.

    ``counts`` are by table and outcome.
    """

    written: Mapping[str, TableWritten]
    failures: Mapping[str, FrazilError]
    stopped: tuple[PartitionFailure, ...] = ()
    rejected: Sequence[RejectedRecord] = ()
    counts: Mapping[tuple[str, str], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestJob:
    """Reads splits and writes files; ``tasks`` are the splits of each task. Made to travel."""

    reader: SplitReader
    tasks: tuple[tuple[Split, ...], ...]
    targets: Mapping[str, TableTarget]
    most_rejected_bytes: int
    gauge: TaskGauge | None = None

    @carries_errors
    def run_task(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do the tasks whose numbers come in."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield payload(self.do(self.tasks[number]))

    def do(self, splits: Iterable[Split]) -> TaskOutcome:
        """Read these splits and write what they bring."""
        with ExitStack() as stack:
            writers = _TableWriters(self.targets, self.most_rejected_bytes)
            stack.callback(writers.abandon)
            for split in splits:
                rows = 0
                for reading in self.reader.read(split):
                    if isinstance(reading, TableRows):
                        writers.write(reading.table, reading.rows)
                        rows += reading.rows.num_rows
                    elif isinstance(reading, RejectedRecord):
                        writers.reject(reading)
                    elif isinstance(reading, PartitionFailure):
                        writers.stop(reading)
                    elif isinstance(reading, RecordsCounted):
                        writers.counts[reading.table, reading.outcome.value] += reading.count
                    else:
                        writers.refuse(reading.table, reading.error)
                if self.gauge is not None:
                    self.gauge.add(rows=rows, size=split.weight)
            # Workers are kept for the next batch: what this one needed is given back until then.
            stack.callback(pa.default_memory_pool().release_unused)
            return writers.close()


def over_bound(records: Sequence[RejectedRecord], most_bytes: int) -> Mapping[str, FrazilError]:
    """The tables to leave out of a batch so that the records of the others are not too many.

    A batch that rejects so much has a wrong schema more likely than wrong records, and the driver
    holds all of them in memory.
    """
    weights, counts = Counter[str](), Counter(each.table for each in records)
    for each in records:
        weights[each.table] += each.weight
    excess, failures = weights.total() - most_bytes, {}
    for table, weight in weights.most_common():
        if excess <= 0:
            break
        excess -= weight
        failures[table] = MalformedChangeError(
            f"at least {counts[table]:,} records of one batch were rejected, and dead letters of "
            f"more than {size(most_bytes)} are not kept at a time.",
            table=table,
            next_step="correct the columns or the schema that its records are read with; if all "
            "of them are to become dead letters, lower ingest.max_rows",
        )
    return failures


@dataclass(slots=True)
class _TableWriters:
    """The writers of one task, one for each table that has rows and did not fail."""

    targets: Mapping[str, TableTarget]
    most_rejected_bytes: int
    writers: dict[str, TaskWriter] = field(default_factory=dict)
    operations: dict[str, Counter[str]] = field(default_factory=dict)
    failures: dict[str, FrazilError] = field(default_factory=dict)
    rejected: list[RejectedRecord] = field(default_factory=list)
    rejected_bytes: int = 0
    stopped: list[PartitionFailure] = field(default_factory=list)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def write(self, table: str, rows: pa.RecordBatch) -> None:
        target = self.targets.get(table)
        if target is None or table in self.failures or not rows.num_rows:
            return
        try:
            self._writer(table, target).write(target.lay_out(rows))
        except (SchemaError, SourceError) as error:
            self.refuse(table, error)
            return
        except Exception as error:  # noqa: BLE001 - of one table, whatever it is
            self.refuse(table, defect_of_table(error, table, "writing changes"))
            return
        counted = pc.value_counts(rows.column(ChangeColumn.OPERATION))
        counts = self.operations.setdefault(table, Counter())
        for operation, count in zip(counted.field(0), counted.field(1), strict=True):
            counts[operation.as_py()] += count.as_py()

    def reject(self, record: RejectedRecord) -> None:
        if record.table not in self.targets or record.table in self.failures:
            return
        self.rejected.append(record)
        self.rejected_bytes += record.weight
        if self.rejected_bytes > self.most_rejected_bytes:
            for table, error in over_bound(self.rejected, self.most_rejected_bytes).items():
                self.refuse(table, error)
            self.rejected = [each for each in self.rejected if each.table not in self.failures]
            self.rejected_bytes = sum(each.weight for each in self.rejected)

    def refuse(self, table: str, error: FrazilError) -> None:
        # The first one is the cause.
        self.failures.setdefault(table, error)
        writer = self.writers.pop(table, None)
        if writer is not None:
            writer.abandon()

    def stop(self, failure: PartitionFailure) -> None:
        """A partition has failed: its table is written by the next batch."""
        self.stopped.append(failure)

    def close(self) -> TaskOutcome:
        written = {}
        for table, writer in tuple(self.writers.items()):
            try:
                files = writer.close()
            except Exception as error:  # noqa: BLE001 - of one table, whatever it is
                self.refuse(table, defect_of_table(error, table, "writing changes"))
            else:
                operations = dict(self.operations[table])
                written[table] = TableWritten(files=files, operations=operations)
        self.writers.clear()
        for each in self.stopped:
            # Its rows cannot be taken out of the files again.
            written.pop(each.table, None)
        return TaskOutcome(
            written=written,
            failures=self.failures,
            stopped=tuple(self.stopped),
            rejected=self.rejected,
            counts=dict(self.counts),
        )

    def abandon(self) -> None:
        """What was not closed stays for maintenance."""
        for writer in self.writers.values():
            writer.abandon()

    def _writer(self, table: str, target: TableTarget) -> TaskWriter:
        if table not in self.writers:
            self.writers[table] = TaskWriter(
                target.target, clock=SystemClock(), randomness=SystemRandomness()
            )
        return self.writers[table]
