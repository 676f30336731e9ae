"""Index entries of rows that a task writes: hashed as they are written, without reading them again.

Keys that only Spark hashes are read from the finished files instead (``run_building.py``).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from frazil.codec.key_index.entries import Entries
from frazil.codec.key_index.key_hashing import hash_column
from frazil.errors import NullKeyError
from frazil.hooks import SystemRandomness
from frazil.mirror.index.key_reading import spark_type
from frazil.mirror.index.run_building import fresh_name
from frazil.mirror.row_reader import widened

if TYPE_CHECKING:
    import pyarrow as pa

    from frazil.clients.iceberg.write.task_writer import WrittenPositions
    from frazil.mirror.index.run_building import RunStore
    from frazil.model.key_index import IndexRun, KeyHash
    from frazil.model.schema.types import Field

# Some 170 megabytes until they are written, and few runs of a large table.
_RUN_ENTRIES = 1 << 23


@dataclass(frozen=True, slots=True)
class EntryPlan:
    """How a task indexes the rows that it writes; picklable.

    At most ``few`` entries are handed back instead of written.
    """

    store: RunStore = field(repr=False)
    key: Field
    sequence: Field | None
    hash: KeyHash
    few: int


@dataclass(frozen=True, slots=True)
class WrittenEntries:
    """Entries of some files, whose ordinals count from zero: a few of them, or runs."""

    few: Entries
    runs: tuple[IndexRun, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Hashes of one batch, and where its rows are once the file writer is closed."""

    hi: np.ndarray[tuple[int], np.dtype[np.uint64]]
    lo: np.ndarray[tuple[int], np.dtype[np.uint64]] | None
    sequence: pa.Array | None
    places: WrittenPositions
    first_file: int

    def entries(self) -> Entries:
        file = self.places.file + np.int32(self.first_file)
        return Entries(self.hi, self.lo, file, self.places.position, self.sequence)


class EntryWriter:
    """Collects the entries of one task's rows."""

    def __init__(self, plan: EntryPlan) -> None:
        self._plan = plan
        self._waiting: list[_Rows] = []
        self._settled: list[Entries] = []
        self._count = 0
        self._runs: list[IndexRun] = []

    def add(self, rows: pa.RecordBatch, places: WrittenPositions, first_file: int) -> None:
        """Rows that a file writer was given, whose files are numbered from ``first_file`` on."""
        plan = self._plan
        key = rows.column(plan.key.name)
        if key.null_count:
            message = f"{key.null_count} values of the key are null."
            raise NullKeyError(message, table=plan.store.table)
        hi, lo = hash_column(key, plan.hash)
        sequence = None
        if plan.sequence is not None:
            target = spark_type(plan.sequence.type)[1]
            sequence = widened(rows.column(plan.sequence.name), target)
        self._waiting.append(_Rows(hi, lo, sequence, places, first_file))

    def settle(self) -> None:
        """The file writer is closed: all places are known."""
        self._settled += [each.entries() for each in self._waiting]
        self._count += sum(len(each.hi) for each in self._waiting)
        self._waiting = []
        if self._count >= _RUN_ENTRIES:
            self._write()

    @property
    def has_runs(self) -> bool:
        """Whether so many entries were written that the next ones go to runs of their own."""
        return bool(self._runs)

    def close(self) -> WrittenEntries:
        """What was collected since the writer was made."""
        if self._runs or self._count > self._plan.few:
            self._write()
        few = Entries.concatenate(self._settled or [Entries.empty()])
        return WrittenEntries(few, tuple(self._runs))

    def _write(self) -> None:
        if not self._count:
            return
        entries = Entries.concatenate(self._settled)
        self._settled, self._count = [], 0
        name = fresh_name(SystemRandomness().token)
        self._runs.append(self._plan.store.write_run(name, entries))


def numbered(written: WrittenEntries, first_file: int) -> WrittenEntries:
    """The same entries, of files that are numbered from ``first_file`` on."""
    few = written.few
    return WrittenEntries(
        replace(few, file=few.file + np.int32(first_file)),
        tuple(replace(each, first_ordinal=first_file) for each in written.runs),
    )
