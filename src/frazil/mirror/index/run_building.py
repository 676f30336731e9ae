"""Builds runs of an index with Spark: from the keys of data files, or from older runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import functions as sf

from frazil.clients.iceberg.file_system import InputFiles, OutputFiles
from frazil.clients.spark.task_errors import (
    PAYLOAD,
    carries_errors,
    collect,
    payload,
    running_tasks,
)
from frazil.codec.key_index.entries import Entries
from frazil.codec.key_index.run import run_part, write_run_part
from frazil.errors import DuplicateKeyError
from frazil.hooks import SystemRandomness
from frazil.mirror.index.key_expressions import UuidForm, key_hash_columns
from frazil.mirror.index.key_reading import FILE, POSITION, SEQUENCE
from frazil.mirror.index.run_cache import BlobKey, shared_run_cache
from frazil.mirror.index.run_merging import fetch_bucket, merge_entries, plan_bits
from frazil.model.command import command
from frazil.model.key_index import TOMBSTONE, IndexRun, KeyHash, RunPart
from frazil.model.table_name import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from frazil.mirror.index.key_reading import KeyReader
    from frazil.model.key_index import IndexedFile

HI, LO = "_hi", "_lo"
# Below this, a Spark job costs more than the work it would spread.
DRIVER_ENTRIES = 1_000_000
_UUID_BYTES = 16
_ATTEMPT_BYTES = 4


@dataclass(frozen=True, slots=True)
class RunStore:
    """The folder of a table's runs, and how to access it; picklable.

    With ``cache_dir``, what is written is kept decoded on this machine too: the next merge looks
    keys up in it, and would wait until it is fetched.
    """

    table: str
    folder: str
    io_properties: tuple[tuple[str, str], ...] = field(repr=False)
    cache_dir: str | None = None
    cache_bytes: int = 0

    def write_part(self, run: str, bits: int, buckets: Mapping[int, Entries]) -> RunPart:
        """Write the buckets of one task as one file."""
        puffin = write_run_part(buckets, bits=bits)
        # A task may run twice, even concurrently: neither may overwrite the other's file.
        attempt = SystemRandomness().token(_ATTEMPT_BYTES).hex()
        location = f"{self.folder}/{run}-{min(buckets):05d}-{attempt}.puffin"
        OutputFiles(dict(self.io_properties)).write_file(location, puffin.data)
        part = run_part(location, puffin)
        if self.cache_dir is not None:
            cache = shared_run_cache(self.cache_dir, self.cache_bytes)
            for blob in part.blobs:
                cache.keep(BlobKey.of(part, blob), buckets[blob.bucket])
        return part

    def write_run(self, run: str, entries: Entries) -> IndexRun:
        """Write a small run in one file, without a job."""
        bits = plan_bits(len(entries))
        sorted_ = entries.sorted()
        buckets = {number: sorted_.take(where) for number, where in sorted_.bucket_slices(bits)}
        return IndexRun(run, bits, (self.write_part(run, bits, buckets),) if buckets else ())


@dataclass(frozen=True, slots=True)
class _BucketWriter:
    """Writes the entries of one bucket as a part of a run; picklable."""

    store: RunStore
    run: str
    bits: int
    hash: KeyHash
    has_sequence: bool
    # When the remembered deletes were found, in seconds since the epoch.
    now: int
    # A small index is returned instead of written.
    hand_back: bool

    @carries_errors
    def write(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Sort, count duplicate keys, write; yields the part and the count."""
        waiting = list(batches)
        if not sum(batch.num_rows for batch in waiting):
            return
        rows = pa.Table.from_batches(waiting)
        entries = self._entries(rows).sorted()
        rows_only = entries.take(entries.file != TOMBSTONE) if self.has_sequence else entries
        twice = int(np.count_nonzero(rows_only.same_key()))
        context = TaskContext.get()
        number = 0 if context is None else context.partitionId()
        made = (
            entries
            if self.hand_back
            else self.store.write_part(self.run, self.bits, {number: entries})
        )
        yield payload((made, twice))

    def _entries(self, rows: pa.Table) -> Entries:
        lower = None if self.hash is KeyHash.XXHASH64 else unsigned(rows.column(LO))
        file = rows.column(FILE).to_numpy().astype(np.int32)
        hi, position = unsigned(rows.column(HI)), rows.column(POSITION).to_numpy()
        if not self.has_sequence:
            return Entries(hi, lower, file, position)
        sequence = pa.concat_arrays(rows.column(SEQUENCE).chunks)
        recorded = np.where(file == TOMBSTONE, self.now, 0)
        return Entries(hi, lower, file, position, sequence, recorded)


def build_entries(
    session: SparkSession,
    reader: KeyReader,
    store: RunStore,
    *,
    hash_: KeyHash,
    run: str,
    small: int,
    now: int,
    remembered: DataFrame | None = None,
    may_repeat: bool = False,
) -> IndexRun | Entries:
    """The live keys of these files: a run, or the entries themselves when they are few.

    ``remembered`` has the halves of the hash and the sequence of deleted keys to add.

    Raises DuplicateKeyError with the count and the query that lists the keys, unless they
    ``may_repeat``.
    """
    rows = sum(each.rows for each in reader.files)
    hand_back = rows <= small
    bits = 0 if hand_back else plan_bits(rows)
    writer = _BucketWriter(store, run, bits, hash_, reader.sequence is not None, now, hand_back)
    hashed = hashed_keys(session, reader)
    if remembered is not None:
        nowhere = [sf.lit(TOMBSTONE).alias(FILE), sf.lit(-1).cast("bigint").alias(POSITION)]
        kept = remembered.toDF(HI, LO, SEQUENCE).select(HI, LO, SEQUENCE, *nowhere)
        hashed = hashed.unionByName(kept)
    routed = routed_by_bucket(hashed, bits)
    with running_tasks(str(reader.table), "building the key index"):
        made = collect(routed.mapInArrow(writer.write, PAYLOAD))
    if not may_repeat:
        _refuse_duplicates(sum(twice for _, twice in made), reader)
    if hand_back:
        return Entries.concatenate([entries for entries, _ in made] or [Entries.empty()])
    return IndexRun(run, bits, tuple(part for part, _ in made))


def hashed_keys(session: SparkSession, reader: KeyReader) -> DataFrame:
    """Hash and position of every live row of the files."""
    count = len(reader.files)
    # A task per file, up to a limit.
    numbers = session.range(0, count, 1, max(1, min(count, 256)))
    keys = numbers.mapInArrow(reader.read, reader.spark_schema)
    columns = [(sf.col(name), type_) for name, type_ in reader.key_types]
    hi, lo = key_hash_columns(columns, uuids=UuidForm.BYTES)
    sequence = [sf.col(SEQUENCE)] if reader.sequence is not None else []
    return keys.select(hi.alias(HI), lo.alias(LO), FILE, POSITION, *sequence)


def routed_by_bucket(hashed: DataFrame, bits: int) -> DataFrame:
    """Rows in the partition that has the number of their bucket."""
    bucket = sf.shiftrightunsigned(sf.col(HI), 64 - bits).cast("int") if bits else sf.lit(0)
    return hashed.repartitionById(2**bits, bucket)


def _refuse_duplicates(twice: int, reader: KeyReader) -> None:
    if twice:
        names = ", ".join(quote(each.name) for each in reader.key)
        # Printed for an operator to run.
        name = reader.table.quoted
        query = f"select {names} from {name} group by {names} having count(*) > 1"  # noqa: S608
        message = f"{twice} rows have a key that another live row has; they are listed by: {query}."
        next_step = command("resync", reader.table)
        raise DuplicateKeyError(message, table=str(reader.table), next_step=next_step)


@dataclass(frozen=True, slots=True)
class RunMerger:
    """Merges older runs into one, bucket by bucket; picklable."""

    store: RunStore
    run: str
    bits: int
    runs: tuple[IndexRun, ...]
    files: tuple[IndexedFile, ...]
    tombstones_before: int | None

    @carries_errors
    def write(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Merge the buckets with the incoming numbers."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                part = self.merge_bucket(number)
                if part is not None:
                    yield payload(part)

    def merge_bucket(self, number: int) -> RunPart | None:
        """One bucket without its dead entries; None when nothing is left of it."""
        inputs = InputFiles(dict(self.store.io_properties))
        parts = [
            entries for run in self.runs for entries in fetch_bucket(run, number, self.bits, inputs)
        ]
        merged = merge_entries(
            parts, files=self.files, inputs=inputs, tombstones_before=self.tombstones_before
        )
        return self.store.write_part(self.run, self.bits, {number: merged}) if len(merged) else None


def merge_runs(session: SparkSession, merger: RunMerger, *, slots: int = 0) -> IndexRun:
    """Replace several runs by one; small ones are merged on the driver.

    At most ``slots`` tasks run at a time, if that is a number above zero: Spark begins a later job
    only when no task of an earlier one waits, so that a merge would wait for all of them.
    """
    buckets = 2**merger.bits
    if sum(run.entries for run in merger.runs) <= DRIVER_ENTRIES:
        made = [merger.merge_bucket(number) for number in range(buckets)]
        parts = tuple(part for part in made if part is not None)
    else:
        numbers = session.range(0, buckets, 1, min(buckets, slots or buckets))
        with running_tasks(merger.store.table, "merging runs of the key index"):
            parts = tuple(collect(numbers.mapInArrow(merger.write, PAYLOAD)))
    return IndexRun(merger.run, merger.bits, parts)


def fresh_name(token: Callable[[int], bytes]) -> str:
    """A unique name for a run or file."""
    return str(UUID(bytes=token(_UUID_BYTES), version=4))


def unsigned(column: pa.ChunkedArray) -> NDArray[np.uint64]:
    """Spark's signed numbers with the same bits."""
    signed: NDArray[np.int64] = column.to_numpy()
    return signed.view(np.uint64)
