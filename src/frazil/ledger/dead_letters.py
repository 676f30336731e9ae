"""The dead letters: records that could not be written, kept complete until an operator decides."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name every reader of PySpark knows

from frazil.clients.iceberg.commit.strict_commit import StrictCommit
from frazil.clients.iceberg.lake import NEWEST_FORMAT, TableDefinition
from frazil.clients.java_errors import translated
from frazil.errors import ConfigError
from frazil.hooks import SystemClock, SystemRandomness
from frazil.ledger.rows import position_text
from frazil.ledger.writing import write_rows
from frazil.model.marker import Marker, MarkerMove, MarkerRole
from frazil.model.schema.types import Field, Primitive, Schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from frazil.clients.iceberg.lake import Lake
    from frazil.clients.iceberg.table import LakeTable
    from frazil.hooks import Clock, Randomness
    from frazil.model.rejected_record import RejectedRecord
    from frazil.model.table_name import TableName

SCHEMA = Schema(
    0,
    (
        Field(1, "source", Primitive.STRING, required=True),
        Field(2, "position", Primitive.STRING, required=True, doc="where it was read"),
        Field(3, "table_name", Primitive.STRING, doc="where it should have gone, if known"),
        Field(4, "reason_code", Primitive.STRING, required=True),
        Field(5, "message", Primitive.STRING, required=True),
        Field(6, "payload", Primitive.BINARY, required=True, doc="as the source gave it"),
        Field(7, "first_seen_at", Primitive.TIMESTAMPTZ, required=True),
        Field(8, "last_seen_at", Primitive.TIMESTAMPTZ, required=True),
        Field(9, "attempts", Primitive.LONG, required=True),
        Field(10, "batch", Primitive.STRING, required=True),
    ),
)


class DeadLetterTable:
    """One pipeline's dead letters; lives on the driver."""

    def __init__(
        self,
        table: LakeTable,
        *,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        self.table = table
        self._clock = clock or SystemClock()
        self._randomness = randomness or SystemRandomness()

    @classmethod
    def ensure(
        cls, lake: Lake, name: TableName, *, format_version: int = NEWEST_FORMAT
    ) -> DeadLetterTable:
        """The table as it is, or a new and empty one."""
        definition = TableDefinition(schema=SCHEMA, format_version=format_version)
        return cls(lake.ensure_table(name, definition))

    def position(self, pipeline: str) -> Mapping[str, int]:
        """The next offset of every partition that a record of this pipeline came from."""
        marker = self.table.load_marker(MarkerRole.INGEST)
        if marker is None or isinstance(marker.position, str):
            return {}
        if marker.pipeline != pipeline:
            why = f"it has the dead letters of the pipeline {marker.pipeline}."
            raise self._taken(why)
        return marker.position

    def keep(
        self,
        records: Sequence[RejectedRecord],
        *,
        pipeline: str,
        source: str,
        batch: str,
        at: datetime,
    ) -> tuple[RejectedRecord, ...]:
        """Write those records of a batch that are not here yet, in one commit; returns these.

        The marker says up to where all are here: a batch that is read again after a crash doubles
        none. What is read again from before it, with another schema perhaps, is looked up. Whatever
        goes wrong is raised: a batch whose records are not kept must not be acknowledged. Raises
        FencedError when another process keeps records of these partitions.
        """
        known, goal = self.position(pipeline), dict[str, int]()
        head = self.table.load_state().head
        # Another source may have a table of this name.
        keys = {each.where: f"{source}/{each.where}" for each in records}
        passed = [each for each in records if each.offset < known.get(keys[each.where], 0)]
        here = self._find(passed, source, head.id) if passed and head is not None else frozenset()
        new = [each for each in records if _identity(each) not in here]
        for each in new:
            key = keys[each.where]
            goal[key] = max(goal.get(key, known.get(key, 0)), each.offset + 1)
        if new:
            marker = Marker(pipeline=pipeline, source=pipeline, position=goal, batch=batch)
            start = {key: known[key] for key in goal if key in known}
            move = MarkerMove(MarkerRole.INGEST, start if known else None, marker)
            rows = [_row(each, source=source, batch=batch, at=at) for each in new]
            target = self.table.load_write_target()
            if not {each.name for each in SCHEMA.fields} <= {
                each.name for each in target.schema.fields
            }:
                raise self._taken("its columns are not those of dead letters.")
            changes = write_rows(target, rows, clock=self._clock, randomness=self._randomness)
            commit = StrictCommit(move=move, changes=changes)
            if passed and head is not None:
                # The marker does not say whether another process kept some of these meanwhile.
                self.table.commit(replace(commit, planned_on=head.id))
            else:
                self.table.append(commit)
        return tuple(new)

    def _find(
        self, records: Iterable[RejectedRecord], source: str, snapshot_id: int
    ) -> frozenset[tuple[str, str]]:
        """Those of the records that are here."""
        columns = "position string, payload_hash string"
        with translated(str(self.table.name), "reading dead letters"):
            kept = self.table.read(snapshot_id).where(F.col("source") == F.lit(source))
            found = kept.select("position", F.sha2("payload", 256).alias("payload_hash"))
            wanted = {_identity(each) for each in records}
            looked_up = kept.sparkSession.createDataFrame(list(wanted), columns)
            rows = found.join(looked_up, ["position", "payload_hash"], "left_semi").collect()
        return frozenset((row["position"], row["payload_hash"]) for row in rows)

    def _taken(self, why: str) -> ConfigError:
        next_step = "name another table under dead_letters"
        return ConfigError(why, table=str(self.table.name), next_step=next_step)


def _position(record: RejectedRecord) -> str:
    return position_text({record.where: record.offset})


def _identity(record: RejectedRecord) -> tuple[str, str]:
    """Where it was read, and what it is: a topic that is made again counts from 0 again."""
    return _position(record), sha256(record.payload).hexdigest()


def _row(record: RejectedRecord, *, source: str, batch: str, at: datetime) -> dict[str, object]:
    return {
        "source": source,
        "position": _position(record),
        "table_name": record.table,
        "reason_code": record.reason.value,
        "message": record.message,
        "payload": record.payload,
        "first_seen_at": at,
        "last_seen_at": at,
        "attempts": 1,
        "batch": batch,
    }
