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
from frazil.maintain.compaction.layout import RewriteLayout, ScatteredRows, SourceRows
from frazil.maintain.compaction.row_reading import read_live_rows
from frazil.mirror.deleted_rows import load_many
from frazil.model.key_index import IndexedFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from frazil.clients.iceberg.write.data_file import WrittenFile
    from frazil.clients.iceberg.write.task_writer import WrittenPositions
    from frazil.clients.iceberg.write.write_target import WriteTarget
    from frazil.codec.deletes.deletion_vector import DeletionVector
    from frazil.maintain.compaction.row_reading import RewrittenFile


@dataclass(frozen=True, slots=True)
class RewriteGroup:
    """Files that one task rewrites, in this order, and how their rows are written."""

    files: tuple[RewrittenFile, ...]
    target: WriteTarget = field(repr=False)


@dataclass(frozen=True, slots=True)
class RewrittenGroup:
    """What a task wrote, and where the rows are that it moved."""

    layout: RewriteLayout
    files: tuple[WrittenFile, ...]


class _PlaceRecorder:
    """Finds out whether rows were written one file after the other; keeps places otherwise.

    A table without partitions has its rows in one file after the other, so nothing is kept.
    """

    def __init__(self, *, is_partitioned: bool) -> None:
        self._is_partitioned = is_partitioned
        self._kept: list[WrittenPositions] = []

    def add(self, written: WrittenPositions) -> None:
        """The places of the next rows, which are complete when the writer is closed."""
        if self._is_partitioned:
            self._kept.append(written)

    def scattered(self, targets: Sequence[int]) -> ScatteredRows | None:
        """The place of each row, unless files follow the order of the rows."""
        if not self._kept:
            return None
        file = np.concatenate([each.file for each in self._kept])
        position = np.concatenate([each.position for each in self._kept])
        follows = np.array_equal(file, np.repeat(np.arange(len(targets)), targets))
        if follows and np.array_equal(position, _counting(targets)):
            return None
        return ScatteredRows(file, position)


def _counting(targets: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """From zero on, for each file again."""
    starts = np.cumsum(targets) - np.asarray(targets, np.int64)
    counted: np.ndarray[tuple[int], np.dtype[np.int64]] = np.arange(sum(targets)) - np.repeat(
        starts, targets
    )
    return counted


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """Rewrites the groups with the incoming numbers; picklable."""

    groups: tuple[RewriteGroup, ...]

    @carries_errors
    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the number of each group and what became of it."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield payload((number, rewrite_group(self.groups[number])))


def rewrite_group(group: RewriteGroup) -> RewrittenGroup:
    """Write the live rows of the files again; raises StorageError, leaving what it wrote."""
    target = group.target
    inputs = InputFiles(dict(target.io_properties))
    dead = load_many([each.file for each in group.files], inputs)
    writer = TaskWriter(target, clock=SystemClock(), randomness=SystemRandomness())
    places = _PlaceRecorder(is_partitioned=bool(target.spec.fields))
    try:
        for rewritten, deleted in zip(group.files, dead, strict=True):
            for batch in read_live_rows(rewritten, deleted, target.schema, inputs):
                if batch.num_rows:
                    places.add(writer.write(batch))
        files = writer.close()
    except BaseException:
        writer.abandon()
        raise
    sources = tuple(map(_source_rows, group.files, dead))
    targets = tuple(each.rows for each in files)
    return RewrittenGroup(RewriteLayout(sources, targets, places.scattered(targets)), files)


def _source_rows(rewritten: RewrittenFile, dead: DeletionVector) -> SourceRows:
    return SourceRows(rewritten.file.location, rewritten.file.rows, dead)


def rewrite_groups(
    session: SparkSession, groups: Sequence[RewriteGroup], *, table: str, slots: int
) -> tuple[RewrittenGroup, ...]:
    """Rewrite all groups in one job of at most ``slots`` tasks at a time, in their order."""
    numbers = session.range(0, len(groups), 1, max(1, min(len(groups), slots)))
    with running_tasks(table, "rewriting data files"):
        found = collect(numbers.mapInArrow(RewriteTask(tuple(groups)).run, PAYLOAD))
    by_number: dict[int, RewrittenGroup] = dict(found)
    return tuple(by_number[number] for number in range(len(groups)))


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
