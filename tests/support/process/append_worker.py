"""A process of its own that appends numbers to a table, for tests that pause or kill it.

``python append_worker.py DOCUMENT WHO GOAL``: takes the table's marker from where it is to GOAL,
one number a commit, and prints what happened as one line of JSON. Another worker may do the same.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from frazil.clients.iceberg.commit.strict_commit import FileChanges, StrictCommit
from frazil.clients.iceberg.lake import Lake, TableDefinition
from frazil.clients.iceberg.write.task_writer import TaskWriter
from frazil.clients.spark.session import open_session
from frazil.config import load_config
from frazil.errors import FencedError
from frazil.hooks import SystemClock, SystemRandomness
from frazil.model.marker import Marker, MarkerMove, MarkerRole
from frazil.model.schema.types import Field, Primitive, Schema
from frazil.model.table_name import parse_table_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from frazil.clients.iceberg.commit.strict_commit import Receipt
    from frazil.clients.iceberg.table import LakeTable
    from frazil.clients.iceberg.write.write_target import WriteTarget

NAME = "races.numbers"
SCHEMA = Schema(0, (Field(1, "id", Primitive.LONG, required=True),), frozenset({1}))


def append_next(table: LakeTable, target: WriteTarget, who: str) -> Receipt:
    """One number, the one after the marker's."""
    marker = table.load_marker(MarkerRole.INGEST)
    start = None if marker is None else str(marker.position)
    number = 0 if start is None else int(start) + 1
    writer = TaskWriter(target, clock=SystemClock(), randomness=SystemRandomness())
    writer.write(pa.record_batch({"id": pa.array([number], pa.int64())}))
    files = tuple(file.descriptor for file in writer.close())
    goal = Marker(pipeline="races", source="numbers", position=str(number), batch=f"{who}-{number}")
    commit = StrictCommit(
        move=MarkerMove(MarkerRole.INGEST, start, goal), changes=FileChanges(added=files)
    )
    return table.append(commit)


def ensure_numbers(spark: SparkSession, catalog: str) -> LakeTable:
    """The table the workers share."""
    name = parse_table_name(NAME, catalog=catalog)
    return Lake(spark, catalog).ensure_table(name, TableDefinition(schema=SCHEMA))


def append_until(table: LakeTable, who: str, goal: int) -> dict[str, object]:
    """Append until the marker has reached the goal, even if another process moved it."""
    target = table.load_write_target()
    committed = 0
    fenced: list[str] = []
    while True:
        marker = table.load_marker(MarkerRole.INGEST)
        if marker is not None and int(str(marker.position)) >= goal:
            return {"who": who, "committed": committed, "fenced": fenced}
        try:
            append_next(table, target, who)
            committed += 1
        except FencedError as error:
            fenced.append(str(error))


def work(document: Path, who: str, goal: int) -> dict[str, object]:
    """What this process does."""
    config = load_config(document, environ={}).config
    with open_session(config) as spark:
        table = ensure_numbers(spark, config.catalog.name)
        sys.stderr.write("ready\n")
        sys.stderr.flush()
        return append_until(table, who, goal)


if __name__ == "__main__":
    report = work(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
    sys.stdout.write(json.dumps(report) + "\n")
