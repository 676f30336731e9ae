"""Writes Arrow batches to Parquet files inside a Spark task, and returns their descriptors."""

from __future__ import annotations

import uuid
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from frazil.clients.iceberg.file_system import OutputFiles
from frazil.clients.iceberg.write.arrow_schema import arrow_schema
from frazil.clients.iceberg.write.conforming import conform
from frazil.clients.iceberg.write.data_file import DataFile
from frazil.clients.iceberg.write.partition_split import Part, PartitionSpill, PartitionSplitter
from frazil.clients.iceberg.write.partition_text import file_location

if TYPE_CHECKING:
    import numpy.typing as npt

    from frazil.clients.iceberg.write.data_file import WrittenFile
    from frazil.clients.iceberg.write.partition_text import PartitionValue
    from frazil.clients.iceberg.write.write_target import WriteTarget
    from frazil.hooks import Clock, Randomness

    _Key = tuple[PartitionValue, ...]

# A stream to an object store buffers up to ten megabytes of its current part.
OPEN_FILES = 20
# Partitions that are written concurrently; with more, rows are spilled to the local disk.
SIDE_BY_SIDE = 1_000
_UUID_BYTES = 16


@dataclass(frozen=True, slots=True)
class WrittenPositions:
    """The position of each row of a batch: the file's ordinal and the row's position in it.

    With many partitions it is known only once the writer is closed.
    """

    file: npt.NDArray[np.int32]
    position: npt.NDArray[np.int64]


class TaskWriter:
    """Writes one task's rows of one table; file ordinals count the files of ``close``.

    Rows should be clustered by partition: a partition that was closed to save memory gets another
    file. Rows of more than ``side_by_side`` partitions are spilled to the local disk and written
    partition by partition, so that any number can be written in bounded memory. Files are never
    deleted, even if the task fails.
    """

    def __init__(
        self,
        target: WriteTarget,
        *,
        clock: Clock,
        randomness: Randomness,
        open_files: int = OPEN_FILES,
        side_by_side: int = SIDE_BY_SIDE,
    ) -> None:
        self._target = target
        self._schema = arrow_schema(target.schema)
        self._splitter = PartitionSplitter(target)
        self._files = OutputFiles(dict(target.io_properties))
        self._clock = clock
        self._randomness = randomness
        self._open_files = open_files
        self._side_by_side = side_by_side
        self._spill: PartitionSpill | None = None
        self._spilled: list[WrittenPositions] = []
        self._current: OrderedDict[_Key, tuple[int, DataFile]] = OrderedDict()
        self._locations: list[str] = []
        self._finished: dict[int, WrittenFile] = {}

    @property
    def locations(self) -> tuple[str, ...]:
        """Every file begun so far, finished or not, by ordinal."""
        return tuple(self._locations)

    def write(self, batch: pa.RecordBatch) -> WrittenPositions:
        """Write the rows; their positions are known when the writer is closed, or before.

        Raises UnrepresentableValueError before any row of the batch is written, and StorageError.
        """
        fitted = conform(batch, self._target.schema, self._schema)
        written = WrittenPositions(
            np.empty(fitted.num_rows, np.int32), np.empty(fitted.num_rows, np.int64)
        )
        if fitted.num_rows == 0:
            return written
        if not self._target.spec.fields:
            self._write_part((), fitted, slice(None), written)
            return written
        parts = [(_key(part.partition), part) for part in self._splitter.split(fitted)]
        if self._spill is None and self._are_many(parts):
            self._spill = PartitionSpill(self._schema, table=self._target.table)
        if self._spill is not None:
            self._spill.add(fitted, parts)
            self._spilled.append(written)
            return written
        for _, part in parts:
            self._write_part(part.partition, _rows_of(fitted, part), part.rows, written)
        return written

    def close(self) -> tuple[WrittenFile, ...]:
        """Finish every file; raises StorageError."""
        self._finish_all()
        if self._spill is not None:
            for pieces in self._spill.drain():
                for piece in pieces:
                    written = self._spilled[piece.batch]
                    self._write_part(piece.partition, piece.rows, piece.row_indices, written)
                self._finish_all()
            self._spill = None
        return tuple(self._finished[ordinal] for ordinal in sorted(self._finished))

    def abandon(self) -> tuple[str, ...]:
        """Stop without deleting anything; returns the files that were begun."""
        while self._current:
            _, (_, file) = self._current.popitem()
            file.abandon()
        if self._spill is not None:
            self._spill.discard()
        return self.locations

    def _are_many(self, parts: list[tuple[_Key, Part]]) -> bool:
        new = sum(key not in self._current for key, _ in parts)
        return len(self._current) + new > self._side_by_side

    def _write_part(
        self,
        partition: tuple[PartitionValue, ...],
        rows: pa.RecordBatch,
        row_indices: npt.NDArray[np.int64] | slice,
        written: WrittenPositions,
    ) -> None:
        size = rows.nbytes / rows.num_rows
        files = np.empty(rows.num_rows, np.int32)
        positions = np.empty(rows.num_rows, np.int64)
        taken = 0
        while taken < rows.num_rows:
            ordinal, file = self._file_for(partition)
            piece = rows.slice(taken, file.remaining_rows(size))
            first = file.append(piece)
            until = taken + piece.num_rows
            files[taken:until] = ordinal
            positions[taken:until] = np.arange(first, first + piece.num_rows)
            taken = until
            if file.is_full:
                self._finish(_key(partition))
            self._stay_within_memory()
        written.file[row_indices] = files
        written.position[row_indices] = positions

    def _file_for(self, partition: tuple[PartitionValue, ...]) -> tuple[int, DataFile]:
        key = _key(partition)
        if key not in self._current:
            name = uuid.UUID(bytes=self._randomness.token(_UUID_BYTES), version=4)
            seconds = int(self._clock.now().timestamp())
            location = file_location(self._target, partition, f"{name}-{seconds}.parquet")
            file = DataFile(self._target, self._schema, location, partition, self._files)
            self._current[key] = (len(self._locations), file)
            self._locations.append(location)
        self._current.move_to_end(key)
        return self._current[key]

    def _finish_all(self) -> None:
        while self._current:
            self._finish(next(iter(self._current)))

    def _finish(self, key: _Key) -> None:
        ordinal, file = self._current[key]
        self._finished[ordinal] = file.close()
        del self._current[key]

    def _stay_within_memory(self) -> None:
        """Encode the fullest buffers and close the least recently used files."""
        files = [file for _, file in self._current.values()]
        buffered = sum(file.buffered_bytes for file in files)
        if buffered > self._target.row_group_bytes:
            max(files, key=lambda file: file.buffered_bytes).encode()
        open_ = [key for key, (_, file) in self._current.items() if file.is_open]
        for key in open_[: -self._open_files]:
            self._finish(key)


def _key(partition: tuple[PartitionValue, ...]) -> _Key:
    # In Python both zeros are one key; the partitions are two.
    return tuple(str(each) if isinstance(each, float) else each for each in partition)


def _rows_of(batch: pa.RecordBatch, part: Part) -> pa.RecordBatch:
    if len(part.rows) == batch.num_rows:
        return batch
    # Not sliced from a sorted copy: a small partition would keep all of it in memory.
    return batch.take(pa.array(part.rows))
