"""The rows of a source table as Spark sees them, without a changelog in between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from frazil.clients.spark.pinned_session import pinned_session
from frazil.clients.spark.task_errors import carries_errors
from frazil.ingest.batch_run import spread
from frazil.mirror.index.key_reading import spark_type
from frazil.model.schema.types import List
from frazil.sources.protocol import PartitionFailure, TableFailure, TableRows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from frazil.model.schema.types import Type
    from frazil.sources.protocol import Batch, Split, SplitReader


@dataclass(frozen=True, slots=True)
class ReadJob:
    """Reads splits and hands their rows to Spark, columns by number; made to travel."""

    reader: SplitReader
    tasks: tuple[tuple[Split, ...], ...]
    columns: Mapping[int, pa.DataType]

    @carries_errors
    def run_task(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do the tasks whose numbers come in; raises what keeps a table from being read."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for split in self.tasks[number]:
                    yield from self._rows(split)

    def _rows(self, split: Split) -> Iterator[pa.RecordBatch]:
        for reading in self.reader.read(split):
            if isinstance(reading, TableFailure | PartitionFailure):
                raise reading.error
            if isinstance(reading, TableRows):
                yield pa.RecordBatch.from_pydict(
                    {
                        str(number): reading.rows.column(str(number)).cast(type_)
                        for number, type_ in self.columns.items()
                    }
                )


def source_rows(session: SparkSession, batch: Batch) -> DataFrame:
    """The rows of a batch that has one table, columns named by number; a uuid is sixteen bytes.

    The batch must be checked when everything was read. Reading raises what the source raises.
    """
    (part,) = batch.parts
    types = {each.number: _spark_type(each.type) for each in part.table.columns}
    cores = session.sparkContext.defaultParallelism
    tasks = spread(batch.splits, most=min(cores, batch.most_tasks or cores))
    job = ReadJob(batch.reader, tasks, {number: arrow for number, (_, arrow) in types.items()})
    schema = ", ".join(f"`{number}` {spark_name}" for number, (spark_name, _) in types.items())
    return (
        pinned_session(session).range(0, len(tasks), 1, len(tasks)).mapInArrow(job.run_task, schema)
    )


def _spark_type(type_: Type) -> tuple[str, pa.DataType]:
    if isinstance(type_, List):
        spark_name, arrow = spark_type(type_.element.type)
        return f"array<{spark_name}>", pa.list_(arrow)
    return spark_type(type_)
