"""How fast a task writes, compared with Arrow's own writer."""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.support.report import Comparison, Report, Series
from frazil.clients.iceberg.write.arrow_schema import arrow_schema
from frazil.clients.iceberg.write.task_writer import TaskWriter
from frazil.clients.iceberg.write.write_target import WriteTarget, plan_write_target
from frazil.hooks import SystemClock, SystemRandomness
from frazil.model.schema.partitioning import PartitionField, PartitionSpec, parse_transform
from frazil.model.schema.types import Decimal, Field, Primitive, Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.support.setting import Setting

# The first pair warms the allocator and the disk cache; the median of the others counts.
REPETITIONS = 8
BATCHES = 120
# What Spark puts into one Arrow batch.
ROWS = 10_000

SCHEMA = Schema(
    0,
    (
        Field(1, "id", Primitive.LONG, required=True),
        Field(2, "name", Primitive.STRING),
        Field(3, "amount", Decimal(18, 2)),
        Field(4, "score", Primitive.DOUBLE),
        Field(5, "seen_at", Primitive.TIMESTAMPTZ),
        Field(6, "active", Primitive.BOOLEAN),
    ),
)
BY_BUCKET = PartitionSpec(1, (PartitionField(1, 1000, "id_bucket", parse_transform("bucket[8]")),))


def measure(setting: Setting) -> Report:
    """Our writer compared with Arrow's, on the same batches; then what eight partitions cost."""
    batches = [made(number) for number in range(setting.pick(small=2, full=BATCHES))]
    with one_core(), tempfile.TemporaryDirectory() as folder:
        names = (Path(folder) / f"{number}" for number in count())
        plain = compare(
            ("task writer, one partition", lambda: ours(next(names), batches)),
            ("pyarrow.parquet.ParquetWriter", lambda: arrows(next(names), batches)),
            goal="at most 1.25 (80 % of its speed)",
        )
        split = compare(
            ("task writer, bucket[8]", lambda: ours(next(names), batches, BY_BUCKET)),
            ("pyarrow.parquet.ParquetWriter", lambda: arrows(next(names), batches)),
            goal="none; for the record",
        )
    return Report((plain, split))


@contextmanager
def one_core() -> Iterator[None]:
    """Both sides on the same single core, as a Spark task has one; where the system allows it."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def made(number: int) -> pa.RecordBatch:
    """Rows that compress about as well as rows of an application do."""
    dice = np.random.default_rng(number)
    ids = np.arange(number * ROWS, (number + 1) * ROWS)
    cents = dice.integers(0, 10_000_000, ROWS)
    numbers = dice.integers(0, 50_000, ROWS)
    columns = [
        pa.array(ids),
        pa.array([f"customer {number}" for number in numbers]),
        pa.array(cents).cast(pa.decimal128(19, 0)).cast(pa.decimal128(18, 2)),
        pa.array(dice.normal(size=ROWS)),
        pa.array(1_700_000_000_000_000 + dice.integers(0, 10**12, ROWS)).cast(
            pa.timestamp("us", tz="UTC")
        ),
        pa.array(dice.integers(0, 2, ROWS).astype(bool)),
    ]
    return pa.RecordBatch.from_arrays(columns, names=[each.name for each in SCHEMA.fields])


def target(folder: Path, spec: PartitionSpec) -> WriteTarget:
    """A table in a folder of its own."""
    return plan_write_target(
        table="bench",
        location=str(folder),
        schema=SCHEMA,
        spec=spec,
        properties={},
        io_properties={},
    )


def ours(folder: Path, batches: list[pa.RecordBatch], spec: PartitionSpec | None = None) -> float:
    """The seconds our writer takes, descriptors included."""
    writer = TaskWriter(
        target(folder, spec or PartitionSpec()), clock=SystemClock(), randomness=SystemRandomness()
    )
    started = time.perf_counter()
    for batch in batches:
        writer.write(batch)
    written = writer.close()
    seconds = time.perf_counter() - started
    assert sum(file.rows for file in written) == ROWS * len(batches)  # noqa: S101
    return seconds


def arrows(folder: Path, batches: list[pa.RecordBatch]) -> float:
    """The seconds Arrow takes for the same rows, codec and row groups."""
    folder.mkdir()
    schema = arrow_schema(SCHEMA)
    fitted = [pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in batches]
    started = time.perf_counter()
    with pq.ParquetWriter(
        folder / "plain.parquet", schema, compression="zstd", store_decimal_as_integer=True
    ) as writer:
        writer.write_table(pa.Table.from_batches(fitted))
    return time.perf_counter() - started


def compare(
    first: tuple[str, Callable[[], float]], baseline: tuple[str, Callable[[], float]], *, goal: str
) -> Comparison:
    """Alternate between the two, so that a busy moment hits both."""
    pairs = [(first[1](), baseline[1]()) for _ in range(REPETITIONS)][1:]
    one, other = zip(*pairs, strict=True)
    return Comparison(Series(first[0], one), Series(baseline[0], other), goal)
