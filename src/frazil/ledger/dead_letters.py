"""The dead letters: records that could not be written, kept complete until an operator decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.clients.iceberg.commit.strict_commit import StrictCommit
from frazil.clients.iceberg.lake import NEWEST_FORMAT, TableDefinition
from frazil.errors import ConfigError
from frazil.hooks import SystemClock, SystemRandomness
from frazil.ledger.rows import position_text
from frazil.ledger.writing import write_rows
from frazil.model.marker import Marker, MarkerMove, MarkerRole
from frazil.model.schema.types import Field, Primitive, Schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
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

        The marker says which are here: a batch that is read again after a crash doubles none,
        whatever else it brings then. Whatever goes wrong is raised: a batch whose records are not
        kept must not be acknowledged. Raises FencedError when another process keeps records of
        these partitions.
        """
        known, goal = self.position(pipeline), dict[str, int]()
        new = []
        for each in records:
            # Another source may have a table of this name.
            key = f"{source}/{each.where}"
            if key not in known or each.offset >= known[key]:
                new.append(each)
                goal[key] = max(goal.get(key, each.offset), each.offset + 1)
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
            self.table.append(StrictCommit(move=move, changes=changes))
        return tuple(new)

    def _taken(self, why: str) -> ConfigError:
        next_step = "name another table under dead_letters"
        return ConfigError(why, table=str(self.table.name), next_step=next_step)


def _row(record: RejectedRecord, *, source: str, batch: str, at: datetime) -> dict[str, object]:
    return {
        "source": source,
        "position": position_text({record.where: record.offset}),
        "table_name": record.table,
        "reason_code": record.reason.value,
        "message": record.message,
        "payload": record.payload,
        "first_seen_at": at,
        "last_seen_at": at,
        "attempts": 1,
        "batch": batch,
    }
