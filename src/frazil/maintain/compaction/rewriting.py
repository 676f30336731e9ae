"""Rewrites data files with Spark: a task reads some files in order and writes their live rows."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from frazil.clients.iceberg.file_system import InputFiles
from frazil.clients.iceberg.write.task_writer import TaskWriter
from frazil.clients.spark.task_errors import (
    PAYLOAD,
    carries_errors,
    collect,
    payload,
    running_tasks,
)
from frazil.hooks import SystemClock, SystemRandomness
from frazil.maintain.compaction.layout import RewriteLayout, SourceRows
from frazil.maintain.compaction.row_reading import read_live_rows
from frazil.maintain.compaction.row_sorting import RowSorter
from frazil.mirror.deleted_rows import load_many
from frazil.mirror.index.entry_writing import EntryWriter
from frazil.model.key_index import IndexedFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

    from frazil.clients.iceberg.write.data_file import WrittenFile
    from frazil.clients.iceberg.write.sort_keys import SortKeys
    from frazil.clients.iceberg.write.task_writer import WrittenPositions
    from frazil.clients.iceberg.write.write_target import WriteTarget
    from frazil.codec.deletes.deletion_vector import DeletionVector
    from frazil.maintain.compaction.row_reading import RewrittenFile
    from frazil.mirror.index.entry_writing import EntryPlan, WrittenEntries


@dataclass(frozen=True, slots=True)
class RewriteGroup:
    """Files that one task rewrites, in this order, and how their rows are written.

    With ``order``, rows are sorted by it; otherwise they stay as they are.
    """

    files: tuple[RewrittenFile, ...]
    target: WriteTarget = field(repr=False)
    order: SortKeys | None = None


@dataclass(frozen=True, slots=True)
class RewrittenGroup:
    """What a task wrote, and where the rows are that it moved."""

    layout: RewriteLayout
    files: tuple[WrittenFile, ...]


class _RankRecorder:
    """Finds out where rows were written, in the order in which they were read.

    A table without partitions has its rows in one file after the other, so that nothing is kept
    unless they are sorted.
    """

    def __init__(self, *, is_partitioned: bool) -> None:
        self._is_partitioned = is_partitioned
        self._kept: list[WrittenPositions] = []

    def add(self, written: WrittenPositions) -> None:
        """The places of the next rows, which are complete when the writer is closed."""
        if self._is_partitioned:
            self._kept.append(written)

    def new_ranks(
        self, targets: Sequence[int], order: NDArray[np.uint64] | None
    ) -> NDArray[np.unsignedinteger] | None:
        """The rank of each row in the new files, unless all have the one they had.

        ``order`` has, for each row as it was written, its rank as it was read.
        """
        total = sum(targets)
        if self._kept:
            file = np.concatenate([each.file for each in self._kept])
            position = np.concatenate([each.position for each in self._kept])
            starts = np.cumsum(targets, dtype=np.int64) - np.asarray(targets, np.int64)
            written = starts[file] + position
        elif order is not None:
            written = np.arange(total)
        else:
            return None
        # Half of what eight bytes would be for each row, on the driver until it lands.
        small_enough = total <= np.iinfo(np.uint32).max
        ranks: NDArray[np.unsignedinteger] = np.empty(total, "<u4" if small_enough else "<u8")
        ranks[order if order is not None else slice(None)] = written
        return None if np.array_equal(ranks, np.arange(total)) else ranks


@dataclass(frozen=True, slots=True)
class RewrittenPortion:
    """Neighbouring groups that one task wrote, and the index entries of their files.

    ``first`` is the number of the first group. Entries count the portion's files from zero; there
    are none where nothing is indexed, or where Spark hashes the keys.
    """

    first: int
    groups: tuple[RewrittenGroup, ...]
    entries: WrittenEntries | None

    @property
    def files(self) -> int:
        """How many files the groups have together."""
        return sum(len(each.files) for each in self.groups)


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """Rewrites the groups with the incoming numbers; picklable."""

    groups: tuple[RewriteGroup, ...]
    index: EntryPlan | None

    @carries_errors
    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields a portion whenever its entries are enough for a run, and the last one."""
        numbers = (number for batch in batches for number in batch.column(0).to_pylist())
        first, done = 0, list[RewrittenGroup]()
        entries = self._entry_writer()
        for number in numbers:
            first = first if done else number
            files = sum(len(each.files) for each in done)
            done.append(rewrite_group(self.groups[number], entries, first_file=files))
            if entries is not None and entries.has_runs:
                yield payload(RewrittenPortion(first, tuple(done), entries.close()))
                done, entries = [], self._entry_writer()
        if done:
            written = None if entries is None else entries.close()
            yield payload(RewrittenPortion(first, tuple(done), written))

    def _entry_writer(self) -> EntryWriter | None:
        return None if self.index is None else EntryWriter(self.index)


def rewrite_group(
    group: RewriteGroup, entries: EntryWriter | None = None, *, first_file: int = 0
) -> RewrittenGroup:
    """Write the live rows of the files again; raises StorageError, leaving what it wrote.

    ``entries`` gets what an index needs, with files numbered from ``first_file`` on.
    """
    target = group.target
    inputs = InputFiles(dict(target.io_properties))
    dead = load_many([each.file for each in group.files], inputs)
    writer = TaskWriter(target, clock=SystemClock(), randomness=SystemRandomness())
    recorder = _RankRecorder(is_partitioned=bool(target.spec.fields))
    sorter = None if group.order is None else RowSorter(group.order, table=target.table)
    try:
        for batch in _in_order(_iter_live_rows(group, dead, inputs), sorter):
            written = writer.write(batch)
            recorder.add(written)
            if entries is not None:
                entries.add(batch, written, first_file)
        files = writer.close()
        if entries is not None:
            entries.settle()
    except BaseException:
        writer.abandon()
        raise
    finally:
        if sorter is not None:
            sorter.discard()
    sources = tuple(map(_source_rows, group.files, dead))
    targets = tuple(each.rows for each in files)
    ranks = recorder.new_ranks(targets, None if sorter is None else sorter.order)
    return RewrittenGroup(RewriteLayout(sources, targets, ranks), files)


def _iter_live_rows(
    group: RewriteGroup, dead: Sequence[DeletionVector], inputs: InputFiles
) -> Iterator[pa.RecordBatch]:
    for rewritten, deleted in zip(group.files, dead, strict=True):
        for batch in read_live_rows(rewritten, deleted, group.target.schema, inputs):
            if batch.num_rows:
                yield batch


def _in_order(
    batches: Iterator[pa.RecordBatch], sorter: RowSorter | None
) -> Iterator[pa.RecordBatch]:
    if sorter is None:
        yield from batches
        return
    for batch in batches:
        sorter.add(batch)
    yield from sorter.drain()


def _source_rows(rewritten: RewrittenFile, dead: DeletionVector) -> SourceRows:
    return SourceRows(rewritten.file.location, rewritten.file.rows, dead)


def rewrite_groups(
    session: SparkSession,
    groups: Sequence[RewriteGroup],
    *,
    table: str,
    slots: int,
    index: EntryPlan | None = None,
) -> tuple[RewrittenPortion, ...]:
    """Rewrite all groups in one job of at most ``slots`` tasks at a time, in their order."""
    numbers = session.range(0, len(groups), 1, max(1, min(len(groups), slots)))
    with running_tasks(table, "rewriting data files"):
        found: list[RewrittenPortion] = collect(
            numbers.mapInArrow(RewriteTask(tuple(groups), index).run, PAYLOAD)
        )
    return tuple(sorted(found, key=lambda each: each.first))


def indexed_file(file: WrittenFile, ordinal: int) -> IndexedFile:
    """A new file as the key index has it."""
    partition = json.loads(file.descriptor)["partition"]
    return IndexedFile(
        ordinal=ordinal,
        location=file.location,
        rows=file.rows,
        size=file.size,
        spec_id=file.spec_id,
        partition=json.dumps(partition, separators=(",", ":"), ensure_ascii=False),
    )
