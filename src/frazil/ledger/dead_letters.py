"""The dead letters: records that could not be written, kept complete until an operator decides."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name every reader of PySpark knows

from frazil.clients.iceberg.commit.retrying import RetryPolicy, repeat_on_conflict
from frazil.clients.iceberg.commit.strict_commit import StrictCommit
from frazil.clients.iceberg.lake import NEWEST_FORMAT, TableDefinition
from frazil.clients.java_errors import translated
from frazil.errors import ConfigError
from frazil.hooks import SystemClock, SystemRandomness
from frazil.ledger.rows import position_text
from frazil.ledger.writing import write_rows
from frazil.model.marker import Marker, MarkerMove, MarkerRole, Override
from frazil.model.records.dead_letter import ID_LENGTH, ID_SEPARATOR, DeadLetter
from frazil.model.schema.types import Field, Primitive, Schema

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, Row

    from frazil.clients.iceberg.lake import Lake
    from frazil.clients.iceberg.table import LakeTable
    from frazil.hooks import Clock, Randomness
    from frazil.model.records.rejected_record import RejectedRecord
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

_BATCH_BYTES = 8
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Times as numbers, because Spark gives them without their zone.
_TIMES = ("unix_micros(first_seen_at) as first_seen", "unix_micros(last_seen_at) as last_seen")
_FACTS = (
    "id", "source", "position", "table_name", "reason_code", "message", "attempts", "batch",
    "octet_length(payload) as payload_bytes", *_TIMES,
)  # fmt: skip


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

    @classmethod
    def open(cls, lake: Lake, name: TableName) -> DeadLetterTable:
        """A table that exists; TableNotFoundError otherwise."""
        return cls(lake.open(name))

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

    def letters(
        self,
        *,
        ids: Collection[str] | None = None,
        table: str | None = None,
        reason: str | None = None,
    ) -> Iterator[DeadLetter]:
        """Those that are meant, oldest first; without payloads, which may be large."""
        head = self.table.load_state().head
        if head is None:
            return
        with translated(str(self.table.name), "reading dead letters"):
            found = _chosen(_identified(self.table.read(head.id)), ids, table, reason)
            ordered = found.selectExpr(*_FACTS).orderBy("first_seen", "position", "id")
            for row in ordered.toLocalIterator():
                yield _letter(row)

    def payloads(self, ids: Collection[str]) -> Mapping[str, bytes]:
        """What these letters hold; one that is gone has none."""
        head = self.table.load_state().head
        if head is None:
            return {}
        with translated(str(self.table.name), "reading dead letters"):
            found = _chosen(_identified(self.table.read(head.id)), ids)
            rows = found.select("id", "payload").collect()
        return {row["id"]: bytes(row["payload"]) for row in rows}

    def settle(
        self,
        removed: Collection[str],
        *,
        pipeline: str,
        rejected_again: Mapping[str, RejectedRecord] | None = None,
        at: datetime | None = None,
    ) -> int:
        """Remove letters, and note that others were rejected again, in one commit.

        The position stays where it is. Returns how many letters were changed; without any, nothing
        is committed. Raises ConfigError for the table of another pipeline.
        """
        self.position(pipeline)
        batch = f"letters-{self._randomness.token(_BATCH_BYTES).hex()}"
        again = dict(rejected_again or {})
        moment = at or self._clock.now()
        return repeat_on_conflict(
            lambda: self._settle(frozenset(removed), again, batch=batch, at=moment),
            RetryPolicy(),
            clock=self._clock,
            randomness=self._randomness,
        )

    def _settle(
        self,
        removed: frozenset[str],
        again: Mapping[str, RejectedRecord],
        *,
        batch: str,
        at: datetime,
    ) -> int:
        """One attempt: the files that have such letters are written again without them."""
        version = self.table.load_version()
        state, marker = version.state, version.marker(MarkerRole.INGEST)
        if state.head is None or marker is None:
            return 0
        with translated(str(self.table.name), "reading dead letters"):
            letters = _identified(self.table.read(state.head.id)).withColumn("file", F.col("_file"))
            touched = _chosen(letters, removed | again.keys()).select("id", "file").collect()
            if not touched:
                return 0
            files = {row["file"] for row in touched}
            kept = letters.where(F.col("file").isin(*files) & ~F.col("id").isin(*removed))
            kept = kept.selectExpr("*", *_TIMES)
            rows = (_kept_row(row, again, at) for row in kept.toLocalIterator())
            changes = write_rows(
                version.write_target(), rows, clock=self._clock, randomness=self._randomness
            )
        live = self.table.load_live_files(state.head.id)
        dropped = tuple(each.descriptor for each in live if each.location in files)
        # A marker never moves without a new snapshot, and no snapshot is without one.
        same = replace(marker, batch=batch, snapshot=None)
        seen = state.properties.get(MarkerRole.INGEST.property_name)
        commit = StrictCommit(
            move=Override(MarkerRole.INGEST, seen, same),
            changes=replace(changes, removed=dropped),
            planned_on=state.head.id,
        )
        self.table.commit(commit)
        return len(touched)

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


def _identified(letters: DataFrame) -> DataFrame:
    """With ``letter_id`` of each."""
    parts = (F.col("source"), F.col("position"), F.sha2("payload", 256))
    whole = F.sha2(F.concat_ws(ID_SEPARATOR, *parts), 256)
    return letters.withColumn("id", F.substring(whole, 1, ID_LENGTH))


def _chosen(
    letters: DataFrame,
    ids: Collection[str] | None = None,
    table: str | None = None,
    reason: str | None = None,
) -> DataFrame:
    if ids is not None:
        letters = letters.where(F.col("id").isin(*ids))
    if table is not None:
        letters = letters.where(F.col("table_name") == F.lit(table))
    if reason is not None:
        letters = letters.where(F.col("reason_code") == F.lit(reason))
    return letters


def _letter(row: Row) -> DeadLetter:
    return DeadLetter(
        id=row["id"],
        source=row["source"],
        position=row["position"],
        table=row["table_name"] or "",
        reason=row["reason_code"],
        message=row["message"],
        payload_bytes=row["payload_bytes"],
        first_seen_at=_EPOCH + timedelta(microseconds=row["first_seen"]),
        last_seen_at=_EPOCH + timedelta(microseconds=row["last_seen"]),
        attempts=row["attempts"],
        batch=row["batch"],
    )


def _kept_row(row: Row, again: Mapping[str, RejectedRecord], at: datetime) -> dict[str, object]:
    values = row.asDict()
    for name in ("first_seen", "last_seen"):
        values[f"{name}_at"] = _EPOCH + timedelta(microseconds=values.pop(name))
    record = again.get(values.pop("id"))
    del values["file"]
    if record is not None:
        values |= {
            "reason_code": record.reason.value,
            "message": record.message,
            "last_seen_at": at,
            "attempts": values["attempts"] + 1,
        }
    return values
