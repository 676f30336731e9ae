"""Verifies that a table of records has a row for every record of its source, by their offsets.

Counts and checksums are compared per partition and range of offsets first, the offsets of ranges
that differ then one by one. What is missing is accounted for by a dead letter. A position moves by
whole batches, so that everything in the table belongs to what was read before its marker.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as sf

from frazil.clients.spark.pinned_session import pinned_session
from frazil.clients.spark.task_errors import carries_errors, running_tasks
from frazil.errors import TableNotFoundError
from frazil.ingest.batch_run import spread
from frazil.ledger.rows import brief_position
from frazil.model.command import command
from frazil.model.humanize import counted
from frazil.model.marker import MarkerRole
from frazil.model.records.rejected_record import RejectReason
from frazil.verify.mirror_verifier import Verification
from frazil.verify.offset_ranges import RANGE_OFFSETS, differing_ranges, join_offsets
from frazil.verify.row_comparison import SAMPLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import Column, DataFrame, SparkSession

    from frazil.clients.iceberg.lake import Lake
    from frazil.model.table_name import TableName
    from frazil.sources.protocol import Split
    from frazil.sources.record_source import OffsetReader, RecordOffsets, RecordSource
    from frazil.verify.offset_ranges import OffsetTotals

NOTHING_CAPTURED = "nothing is captured yet"
# They are joined to ranges on the driver; a table that lacks more is named by its first ones.
MOST_OFFSETS = 100_000

_PARTITION, _OFFSET, _RANGE = "partition", "offset", "range"
_COUNT, _CHECKSUM, _SURPLUS = "count", "checksum", "surplus"
_READ = pa.schema([(_PARTITION, pa.int32()), (_OFFSET, pa.int64())])
_SCHEMA = f"{_PARTITION} int, {_OFFSET} bigint"


@dataclass(frozen=True, slots=True)
class OffsetJob:
    """Reads offsets of records in tasks and hands them to Spark; made to travel."""

    reader: OffsetReader
    tasks: tuple[tuple[Split, ...], ...]

    @carries_errors
    def run_task(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do the tasks whose numbers come in."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for split in self.tasks[number]:
                    for partition, offsets in self.reader.read(split):
                        partitions = pa.repeat(pa.scalar(partition, pa.int32()), len(offsets))
                        yield pa.RecordBatch.from_arrays([partitions, offsets], schema=_READ)


class RecordVerifier:
    """Compares tables with the records of their source; lives on the driver."""

    def __init__(
        self, session: SparkSession, lake: Lake, records: RecordSource, dead_letters: TableName
    ) -> None:
        self._session = pinned_session(session)
        self._lake = lake
        self._records = records
        self._dead_letters = dead_letters

    def has(self, source: str) -> bool:
        """Whether the table of this name at the source can be compared."""
        return self._records.has(source)

    def verify(self, name: TableName, source: str) -> Verification:
        """Compare the table with the records before its marker; read-only."""
        # Before the table: what is captured in between is in it, and not asked for.
        records = self._records.until_now()
        version = self._lake.open(name).load_version()
        marker, head = version.marker(MarkerRole.INGEST), version.state.head
        blank = Verification(changelog=name, mirror=name, source=source)
        if marker is None or head is None:
            return replace(blank, note=NOTHING_CAPTURED)
        with running_tasks(str(name), "comparing the table with its source"):
            offsets = records.offsets_of(source, marker.position)
            return self._compare(
                replace(
                    blank,
                    position=brief_position(marker.position),
                    snapshot_id=head.id,
                    columns=offsets.columns,
                ),
                offsets,
            )

    def _compare(self, blank: Verification, offsets: RecordOffsets) -> Verification:
        expected = self._expected(offsets)
        found = self._found(blank, offsets)
        if offsets.is_sparse:
            found = found.join(expected, [_PARTITION, _OFFSET], "left_semi")
        wanted, there = _load_totals(expected), _load_totals(found)
        ranges = differing_ranges(wanted, there)
        verdict = replace(
            blank,
            rows_expected=sum(count for count, _ in wanted.values()),
            rows_found=sum(count for count, _ in there.values()),
            ranges=len(wanted.keys() | there.keys()),
            note=_note(offsets),
        )
        return self._judge(verdict, offsets, expected, found, ranges) if ranges else verdict

    def _judge(
        self,
        verdict: Verification,
        offsets: RecordOffsets,
        expected: DataFrame,
        found: DataFrame,
        ranges: tuple[tuple[int, int], ...],
    ) -> Verification:
        chosen = self._session.createDataFrame(list(ranges), f"{_PARTITION} int, {_RANGE} bigint")
        differing = _difference(_in_ranges(expected, chosen), _in_ranges(found, chosen))
        letters = self._load_letters(verdict, offsets)
        if letters is not None:
            kept = letters.withColumn("is_kept", sf.lit(True))  # noqa: FBT003 - a value in a column
            joined = differing.join(kept, [_PARTITION, _OFFSET], "left")
            is_kept = sf.coalesce(sf.col("is_kept"), sf.lit(False))  # noqa: FBT003 - as above
            differing = joined.where((sf.col(_SURPLUS) > 0) | ~is_kept)
        differing = differing.select(_PARTITION, _OFFSET, _SURPLUS).persist()
        try:
            missing, surplus = _sums(differing)
            if not missing and not surplus:
                return verdict
            ordered = differing.orderBy(_PARTITION, _OFFSET).limit(MOST_OFFSETS).collect()
            of_ranges = differing.select(_PARTITION, _range()).distinct().count()
        finally:
            differing.unpersist()
        return replace(
            verdict,
            differing_ranges=of_ranges,
            missing=missing,
            surplus=surplus,
            offsets=join_offsets(map(tuple, ordered), offsets.partitions, most=SAMPLES),
            next_step=offsets.remedy or command("resync", verdict.source or ""),
        )

    def _expected(self, offsets: RecordOffsets) -> DataFrame:
        if not offsets.splits:
            return self._session.createDataFrame([], _SCHEMA)
        cores = self._session.sparkContext.defaultParallelism
        tasks = spread(offsets.splits, most=cores)
        job = OffsetJob(offsets.reader, tasks)
        numbers = self._session.range(0, len(tasks), 1, len(tasks))
        return numbers.mapInArrow(job.run_task, _SCHEMA)

    def _found(self, blank: Verification, offsets: RecordOffsets) -> DataFrame:
        """Rows of partitions that the source has, from the first offset on that it still has."""
        rows = self._lake.open(blank.mirror).read(blank.snapshot_id)
        begins = self._session.createDataFrame(
            list(offsets.begins.items()), f"{_PARTITION} int, begins bigint"
        )
        columns = rows.where(sf.expr(offsets.counted_sql)).select(
            sf.expr(offsets.partition_sql).cast("int").alias(_PARTITION),
            sf.expr(offsets.offset_sql).cast("bigint").alias(_OFFSET),
        )
        compared = columns.join(sf.broadcast(begins), _PARTITION)
        return compared.where(sf.col(_OFFSET) >= sf.col("begins")).select(_PARTITION, _OFFSET)

    def _load_letters(self, verdict: Verification, offsets: RecordOffsets) -> DataFrame | None:
        """Partition and offset of every record of the table among the dead letters."""
        try:
            letters = self._lake.open(self._dead_letters).read()
        except TableNotFoundError:
            return None
        # A source names partitions to dead letters as in positions, or by what tells them apart.
        names = [
            (number, place)
            for number, name in offsets.partitions.items()
            for place in (name, f"{verdict.source}/{name}")
        ]
        places = self._session.createDataFrame(names, f"{_PARTITION} int, place string")
        # A gap is about offsets that no record has.
        of_table = (sf.col("table_name") == sf.lit(verdict.source)) & (
            sf.col("reason_code") != sf.lit(RejectReason.GAP.value)
        )
        position = sf.from_json("position", "map<string,bigint>")
        found = letters.where(of_table).select(sf.explode(position).alias("place", _OFFSET))
        return found.join(sf.broadcast(places), "place").select(_PARTITION, _OFFSET).distinct()


def _range() -> Column:
    return sf.floor(sf.col(_OFFSET) / sf.lit(RANGE_OFFSETS)).cast("bigint").alias(_RANGE)


def _load_totals(rows: DataFrame) -> OffsetTotals:
    checksum = sf.xxhash64(_OFFSET).cast("decimal(38,0)")
    totals = rows.groupBy(_PARTITION, _range()).agg(
        sf.count("*").alias(_COUNT), sf.sum(checksum).alias(_CHECKSUM)
    )
    return {
        (row[_PARTITION], row[_RANGE]): (row[_COUNT], int(row[_CHECKSUM]))
        for row in totals.collect()
    }


def _in_ranges(rows: DataFrame, chosen: DataFrame) -> DataFrame:
    ranged = rows.withColumn(_RANGE, _range())
    return ranged.join(sf.broadcast(chosen), [_PARTITION, _RANGE], "left_semi")


def _difference(expected: DataFrame, found: DataFrame) -> DataFrame:
    """Offsets with how many rows too many the table has, negative for those that it lacks."""
    sides = expected.select(_PARTITION, _OFFSET, sf.lit(-1).alias(_SURPLUS)).union(
        found.select(_PARTITION, _OFFSET, sf.lit(1).alias(_SURPLUS))
    )
    summed = sides.groupBy(_PARTITION, _OFFSET).agg(sf.sum(_SURPLUS).alias(_SURPLUS))
    return summed.where(sf.col(_SURPLUS) != 0)


def _sums(differing: DataFrame) -> tuple[int, int]:
    """How many rows are missing, and how many there are too many."""
    surplus = sf.col(_SURPLUS)
    row = differing.agg(
        sf.sum(sf.greatest(-surplus, sf.lit(0))).alias("missing"),
        sf.sum(sf.greatest(surplus, sf.lit(0))).alias(_SURPLUS),
    ).first()
    return (0, 0) if row is None else (int(row["missing"] or 0), int(row[_SURPLUS] or 0))


def _note(offsets: RecordOffsets) -> str:
    gone = len(offsets.partitions.keys() - offsets.begins.keys())
    return "" if not gone else f"the source has nothing of {counted(gone, 'partition')} any more"
