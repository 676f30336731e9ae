"""Checks an index: compares its live entries with the keys of the data files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from frazil.clients.iceberg.file_system import InputFiles
from frazil.clients.spark.task_errors import (
    PAYLOAD,
    carries_errors,
    collect,
    payload,
    running_tasks,
)
from frazil.codec.key_index.entries import Entries
from frazil.codec.key_index.run import decode_run
from frazil.mirror.index.key_reading import FILE, POSITION
from frazil.mirror.index.run_building import (
    HI,
    LO,
    hashed_keys,
    routed_by_bucket,
    unsigned,
)
from frazil.mirror.index.run_merging import fetch_bucket, merge_entries, of_bucket, plan_bits
from frazil.model.key_index import TOMBSTONE, KeyHash

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

    from frazil.mirror.index.key_reading import KeyReader
    from frazil.mirror.index.locating import TaskIndex


@dataclass(frozen=True, slots=True)
class IndexVerdict:
    """Live rows of the table, how many of them the index misses, and its entries without a row."""

    rows: int
    missing: int
    surplus: int

    @property
    def is_sound(self) -> bool:
        """Whether the index has every row and nothing else."""
        return not self.missing and not self.surplus


@dataclass(frozen=True, slots=True)
class _BucketComparer:
    """Compares one bucket of the table with the same bucket of the index; picklable."""

    index: TaskIndex
    bits: int
    has_lower_half: bool

    @carries_errors
    def compare(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Count entries that only one of the two has."""
        context = TaskContext.get()
        number = 0 if context is None else context.partitionId()
        rows = [batch for batch in batches if batch.num_rows]
        truth = _comparable_entries(self._of_table(rows))
        indexed = _comparable_entries(self._of_index(number))
        missing = np.setdiff1d(truth, indexed, assume_unique=True)
        surplus = np.setdiff1d(indexed, truth, assume_unique=True)
        yield payload(IndexVerdict(len(truth), len(missing), len(surplus)))

    def _of_table(self, batches: list[pa.RecordBatch]) -> Entries:
        if not batches:
            return Entries.empty()
        rows = pa.Table.from_batches(batches)
        return Entries(
            unsigned(rows.column(HI)),
            unsigned(rows.column(LO)) if self.has_lower_half else None,
            rows.column(FILE).to_numpy().astype(np.int32),
            rows.column(POSITION).to_numpy(),
        )

    def _of_index(self, number: int) -> Entries:
        inputs = InputFiles(dict(self.index.io_properties))
        parts = [
            entries
            for run in self.index.runs
            for entries in fetch_bucket(run, number, self.bits, inputs)
        ]
        if self.index.young is not None:
            parts.append(of_bucket(decode_run(self.index.young), number, self.bits))
        live = merge_entries(parts or [Entries.empty()], files=self.index.files, inputs=inputs)
        return live.take(live.file != TOMBSTONE)


def check_index(
    session: SparkSession, reader: KeyReader, index: TaskIndex, hash_: KeyHash
) -> IndexVerdict:
    """Read every key of the table and compare.

    Raises DamagedIndexError for a file of the index that cannot be read.
    """
    bits = plan_bits(sum(each.rows for each in reader.files))
    comparer = _BucketComparer(index, bits, hash_ is not KeyHash.XXHASH64)
    routed = routed_by_bucket(hashed_keys(session, reader), bits)
    with running_tasks(str(reader.table), "checking the key index"):
        found: list[IndexVerdict] = collect(routed.mapInArrow(comparer.compare, PAYLOAD))
    return IndexVerdict(
        sum(each.rows for each in found),
        sum(each.missing for each in found),
        sum(each.surplus for each in found),
    )


def _comparable_entries(entries: Entries) -> NDArray[np.void]:
    """Entries as single values that can be compared."""
    lower = np.zeros(len(entries), np.uint64) if entries.lo is None else entries.lo
    columns = [entries.hi, lower, entries.file.astype(np.uint64), entries.position.view(np.uint64)]
    table = np.ascontiguousarray(np.stack(columns, axis=1))
    return np.unique(table.view([("", np.uint64)] * len(columns)).ravel())
