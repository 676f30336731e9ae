"""The Spark task of a merge: fold, locate, complete, write; one pass over sorted rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext

from frazil.clients.spark.task_errors import carries_errors, payload
from frazil.codec.key_index.entries import Entries
from frazil.hooks import Failpoint, SystemClock, failpoint
from frazil.merge.folding.arrow_fold import LinkedRowsError, SortedFolder, fold_linked
from frazil.merge.reading.changelog_reader import restore_null_lists
from frazil.merge.report import MergePhase, PhaseTimer
from frazil.merge.writing.admission import ChangeAdmission
from frazil.merge.writing.key_writer import KeyWriter
from frazil.merge.writing.task_result import Obstacle, TaskResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from frazil.merge.folding.change_rows import FoldedKeys, FoldLayout
    from frazil.merge.writing.admission import AdmissionRules
    from frazil.merge.writing.key_writer import KeyWriterSpec
    from frazil.mirror.index.run_building import RunStore

# Rows that are folded, located and sorted at a time: enough for vectorised work, few enough that a
# task holds some tens of megabytes.
_CHUNK_ROWS = 262_144
_CHUNK_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeJob:
    """The settings of all tasks of a merge; picklable.

    ``run`` is the name of the run that tasks of a large merge write together; None when entries go
    back to the driver. The task with the number ``linked_task`` gets the changes of keys that
    depend on each other. ``names`` are the real names of the incoming columns, if they differ.
    """

    layout: FoldLayout
    admission: AdmissionRules
    writing: KeyWriterSpec
    store: RunStore = field(repr=False)
    run: str | None = None
    bits: int = 0
    linked_task: int | None = None
    mirror_is_empty: bool = False
    names: tuple[str, ...] = ()

    @carries_errors
    def run_task(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Merge the incoming changes; yields the result."""
        context = TaskContext.get()
        task = _Task(self, 0 if context is None else context.partitionId())
        try:
            yield payload(task.result(self._named(batches)))
        except BaseException:
            task.writer.abandon()
            raise

    def _named(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield restore_null_lists(batch.rename_columns(self.names) if self.names else batch)


class _Task:
    """The state of one task while it runs."""

    def __init__(self, job: MergeJob, number: int) -> None:
        self.job = job
        self.number = number
        # One more than buckets, for keys that depend on each other.
        self.writer = KeyWriter(job.writing, number, 2**job.bits + 1)
        self.gate = ChangeAdmission(job.admission)
        self._timer = PhaseTimer(SystemClock())

    def result(self, batches: Iterator[pa.RecordBatch]) -> TaskResult:
        """Run to the end, or to the first obstacle."""
        try:
            for folded in self._folded(batches):
                self._merge(folded)
        except LinkedRowsError:
            self.writer.abandon()
            return TaskResult(obstacle=Obstacle.LINKED_KEYS)
        seen = self.gate.seen()
        if seen.obstacle is not None:
            self.writer.abandon()
            return seen
        return self._finish(seen)

    def _folded(self, batches: Iterator[pa.RecordBatch]) -> Iterator[FoldedKeys]:
        if self.number == self.job.linked_task:
            yield from self._folded_together(batches)
            return
        folder = SortedFolder(self.job.layout)
        for chunk in self._admitted(batches):
            with self._timer.timed(MergePhase.FOLD):
                folded = folder.push(chunk)
            if folded is not None:
                yield folded
        with self._timer.timed(MergePhase.FOLD):
            folded = folder.finish()
        if folded is not None:
            yield folded

    def _folded_together(self, batches: Iterator[pa.RecordBatch]) -> Iterator[FoldedKeys]:
        rows = list(self._admitted(batches))
        if rows:
            with self._timer.timed(MergePhase.FOLD):
                folded = fold_linked(pa.Table.from_batches(rows), self.job.layout)
            yield folded

    def _admitted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for chunk in self._chunks(batches):
            with self._timer.timed(MergePhase.FOLD):
                admitted = self.gate.admit(chunk)
            if self.gate.is_blocked:
                return
            if admitted is not None:
                with self._timer.timed(MergePhase.LOCATE):
                    self.writer.compare_superseded(admitted)
                yield admitted

    def _chunks(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        waiting: list[pa.RecordBatch] = []
        rows = size = 0
        while True:
            with self._timer.timed(MergePhase.READ):
                batch = next(batches, None)
            if batch is None:
                break
            waiting.append(batch)
            rows += batch.num_rows
            # Not nbytes: Spark's empty lists have no offsets, and Arrow would crash reading them.
            # Concatenated batches have offsets.
            size += batch.get_total_buffer_size()
            if rows >= _CHUNK_ROWS or size >= _CHUNK_BYTES:
                yield pa.concat_batches(waiting)
                waiting, rows, size = [], 0, 0
        if rows:
            yield pa.concat_batches(waiting)

    def _merge(self, folded: FoldedKeys) -> None:
        with self._timer.timed(MergePhase.LOCATE):
            is_empty = self.job.mirror_is_empty or self.gate.empties_mirror
            keys = self.writer.locate(folded, mirror_is_empty=is_empty)
        failpoint(Failpoint.MERGE_FOLDED)
        with self._timer.timed(MergePhase.WRITE):
            self.writer.write(keys)

    def _finish(self, seen: TaskResult) -> TaskResult:
        with self._timer.timed(MergePhase.WRITE):
            written = self.writer.close()
        entries = written.entries.sorted()
        part = None
        if self.job.run is not None and self.number != self.job.linked_task and len(entries):
            # The number of the task is the bucket of its keys.
            part = self.job.store.write_part(self.job.run, self.job.bits, {self.number: entries})
            entries = Entries.empty()
        counts = Counter(written.counts)
        counts.update(seen.counts)
        return replace(
            written,
            entries=entries,
            part=part,
            rows=seen.rows,
            counts=dict(counts),
            lowest=seen.lowest,
            highest=seen.highest,
            truncated=seen.truncated,
            seconds=self._timer.seconds,
        )
