"""Removes old batches from a ledger, and puts the states of all tables where a start finds them.

A start reads the state rows from the number on that the table's property names: as many as there
are tables, and what was written since.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name every reader of PySpark knows

from frazil.clients.iceberg.commit.strict_commit import StrictCommit
from frazil.clients.java_errors import translated
from frazil.hooks import Failpoint, failpoint
from frazil.ledger.rows import SCHEMA, RowKind
from frazil.ledger.table import STATES_FROM_PROPERTY, STATES_KEY, states_from
from frazil.ledger.writing import write_rows
from frazil.model.marker import MarkerRole, Override
from frazil.model.schema.types import Primitive
from frazil.model.table_facts import UPKEEP_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, Row

    from frazil.clients.iceberg.table import LakeTable
    from frazil.hooks import Clock, Randomness

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIMES = tuple(each.name for each in SCHEMA.fields if each.type is Primitive.TIMESTAMPTZ)


@dataclass(frozen=True, slots=True)
class RetiredRows:
    """What went, and how many files were written for what stays."""

    rows: int
    files: int
    bytes: int
    files_written: int


class _Counted:
    """Rows on their way, and how many have passed."""

    def __init__(self, rows: Iterator[dict[str, object]]) -> None:
        self._rows = rows
        self.count = 0

    def __iter__(self) -> Iterator[dict[str, object]]:
        for row in self._rows:
            self.count += 1
            yield row


def retire_rows(
    table: LakeTable, before: datetime, *, clock: Clock, randomness: Randomness
) -> RetiredRows:
    """Remove rows of before this moment that are not a table's newest state, in one commit.

    One attempt: raises CommitConflictError when another process wrote in the ledger meanwhile. The
    position stays where it is.
    """
    version = table.load_version()
    state, marker = version.state, version.marker(MarkerRole.INGEST)
    if state.head is None or marker is None:
        return RetiredRows(0, 0, 0, 0)
    number = state.head.sequence + 1
    with translated(str(table.name), "reading the ledger"):
        rows = table.read(state.head.id).withColumn("file", F.col("_file"))
        # From a number: a literal time would depend on the session's zone.
        limit = F.timestamp_micros(F.lit((before - _EPOCH) // timedelta(microseconds=1)))
        old = F.col("committed_at") < limit
        files = {row["file"] for row in rows.where(old).select("file").distinct().collect()}
        newest = _newest_rows(rows, states_from(state.properties)).drop("file")
        young = rows.where(F.col("file").isin(*files) & ~old).drop("file")
        kept = _Counted(_kept(newest, young, number))
        changes = write_rows(version.write_target(), kept, clock=clock, randomness=randomness)
    live = [each for each in table.load_live_files(state.head.id) if each.location in files]
    failpoint(Failpoint.MAINTAIN_STAGED)
    commit = StrictCommit(
        move=Override(
            MarkerRole.INGEST,
            state.properties.get(MarkerRole.INGEST.property_name),
            # The same one, batch and all: a commit whose reply was lost is still recognised.
            replace(marker, snapshot=None),
        ),
        changes=replace(changes, removed=tuple(each.descriptor for each in live)),
        summary={STATES_KEY: "0", UPKEEP_KEY: "retention"},
        properties={STATES_FROM_PROPERTY: str(number)},
        planned_on=state.head.id,
    )
    table.commit(commit)
    failpoint(Failpoint.MAINTAIN_COMMITTED)
    return RetiredRows(
        rows=max(sum(each.rows for each in live) - kept.count, 0),
        files=len(live),
        bytes=sum(each.size for each in live),
        files_written=len(changes.added),
    )


def _newest_rows(rows: DataFrame, start: int) -> DataFrame:
    """The last row about each table's state, all columns of it."""
    states = rows.where(F.col("kind") != F.lit(RowKind.BATCH.value))
    states = states.where(F.col("commit_number") >= F.lit(start))
    columns = F.struct(*(F.col(name) for name in rows.columns))
    newest = F.max_by(columns, "commit_number").alias("newest")
    return states.groupBy("table_name").agg(newest).select("newest.*")


def _kept(newest: DataFrame, young: DataFrame, number: int) -> Iterator[dict[str, object]]:
    for row in _with_numbers(newest).toLocalIterator():
        # Counted from this commit on; the time stays that of the state.
        yield {**_values(row), "commit_number": number}
    # A state among these is older than the one above, or the same.
    batches = young.where(F.col("kind") == F.lit(RowKind.BATCH.value))
    for row in _with_numbers(batches).toLocalIterator():
        yield _values(row)


def _with_numbers(rows: DataFrame) -> DataFrame:
    """Times as numbers, because Spark gives them without their zone."""
    for name in _TIMES:
        rows = rows.withColumn(name, F.unix_micros(name))
    return rows


def _values(row: Row) -> dict[str, object]:
    values = row.asDict()
    return {
        **values,
        **{name: _EPOCH + timedelta(microseconds=values[name]) for name in _TIMES},
    }
