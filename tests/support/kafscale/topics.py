"""Plans of topics, a bucket in memory, and what a task reads from it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from frazil.clients.object_store import Bucket
from frazil.config.models.kafscale_source import (
    Envelope,
    Lfs,
    OnBadSegment,
    OnGap,
    OnWrongValue,
    TopicColumn,
    Validation,
)
from frazil.errors import StorageError
from frazil.model.records.rejected_record import RejectedRecord
from frazil.model.schema.types import Primitive
from frazil.model.source_table import SourceColumn
from frazil.sources.change_schema import change_schema
from frazil.sources.kafscale.reading.reader import SegmentReader
from frazil.sources.kafscale.reading.record_rows import BASE_COLUMNS, LFS_COLUMNS
from frazil.sources.kafscale.records.topic_plan import TopicPlan
from frazil.sources.kafscale.segments.planned import PlannedSegment, SegmentRun
from frazil.sources.protocol import (
    ChangeColumn,
    CountedOutcome,
    PartitionFailure,
    RecordsCounted,
    Split,
    TableRows,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

TOPIC = "orders"
PARTITION = 3


@dataclass(frozen=True, kw_only=True)
class BucketInMemory(Bucket):
    """Objects of a test; ``fails`` are keys for which the store does not answer."""

    name: str = "bucket"
    region: str = "here"
    objects: dict[str, bytes] = field(default_factory=dict)
    fails: frozenset[str] = frozenset()

    def read(self, key: str, *, at_most: int | None = None) -> bytes:
        """The object, or the error that a store has."""
        found = self.objects.get(key)
        failure = StorageError(f"reading {key} failed")
        if key in self.fails:
            raise failure
        if found is None:
            failure.is_gone = True
            raise failure
        if at_most is not None and len(found) > at_most:
            failure.is_too_large = True
            raise failure
        return found


def topic_plan(
    *columns: TopicColumn, on_gap: str = "stop", on_bad_segment: str = "stop", **options: Any
) -> TopicPlan:
    """A plan for a topic that becomes a table with these columns next to the ones of all."""
    lfs = options.pop("lfs", Lfs())
    declared = [*BASE_COLUMNS, *((each.name, Primitive(each.type), False) for each in columns)]
    if lfs.store_metadata:
        declared += LFS_COLUMNS
    chosen: dict[str, Any] = {
        "columns": tuple(
            # Numbers are not places.
            SourceColumn(number=2 * place + 5, name=name, type=type_, required=required)
            for place, (name, type_, required) in enumerate(declared)
        ),
        "fields": columns,
        "envelope": Envelope.NONE,
        "validation": Validation.OFF,
        "on_wrong_value": OnWrongValue.NULL,
    }
    return TopicPlan(
        topic=TOPIC,
        lfs=lfs,
        on_gap=OnGap(on_gap),
        on_bad_segment=OnBadSegment(on_bad_segment),
        **(chosen | options),
    )


@dataclass(frozen=True, slots=True)
class TopicReading:
    """What a task read, in the order it came in."""

    plan: TopicPlan
    readings: tuple[object, ...]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Rows by the names of their columns; those of metadata as they are."""
        names = {str(each.number): each.name for each in self.plan.columns}
        expected = change_schema(self.plan.columns, self.plan.key)
        found: list[dict[str, Any]] = []
        for each in self.readings:
            if isinstance(each, TableRows):
                assert each.table == TOPIC
                assert each.rows.schema == expected
                each.rows.validate(full=True)
                for row in each.rows.to_pylist():
                    metadata = {name: row.pop(name) for name in _METADATA}
                    found.append({names[number]: row[number] for number in row} | metadata)
        return found

    @property
    def values(self) -> list[bytes | None]:
        """The value of each row."""
        return [row["value"] for row in self.rows]

    @property
    def rejected(self) -> list[RejectedRecord]:
        """Records that are no rows."""
        return [each for each in self.readings if isinstance(each, RejectedRecord)]

    @property
    def failure(self) -> PartitionFailure | None:
        """What stopped the partition, which is the last reading then."""
        failures = [each for each in self.readings if isinstance(each, PartitionFailure)]
        assert not failures or failures == [self.readings[-1]]
        return failures[0] if failures else None

    @property
    def counts(self) -> dict[CountedOutcome, int]:
        """What is only counted."""
        counts = Counter[CountedOutcome]()
        for each in self.readings:
            if isinstance(each, RecordsCounted):
                counts[each.outcome] += each.count
        return dict(counts)


_METADATA = (
    "operation",
    ChangeColumn.POSITION,
    ChangeColumn.ORDINAL,
    ChangeColumn.COMMITTED_AT,
    ChangeColumn.ORIGIN,
    ChangeColumn.UNCHANGED,
)


def segment_key(base: int) -> str:
    """The key of a segment."""
    return f"default/{TOPIC}/{PARTITION}/segment-{base:020d}.kfs"


def planned(base: int, following: int, **options: Any) -> PlannedSegment:
    """A segment, of which all is to be read, and where the next one begins."""
    chosen = {"from_offset": base, "size": 1} | options
    return PlannedSegment(key=segment_key(base), base_offset=base, next_offset=following, **chosen)


def read_topic(
    plan: TopicPlan,
    segments: Sequence[tuple[PlannedSegment, bytes | None]],
    objects: Iterable[tuple[str, bytes]] = (),
    *,
    fails: Iterable[str] = (),
) -> TopicReading:
    """What a task reads of these segments, some of which may not be there."""
    stored = {each.key: data for each, data in segments if data is not None}
    bucket = BucketInMemory(objects=stored | dict(objects), fails=frozenset(fails))
    run = SegmentRun(TOPIC, PARTITION, tuple(each for each, _ in segments))
    reader = SegmentReader(bucket=bucket, topics={TOPIC: plan})
    return TopicReading(plan, tuple(reader.read(Split(run, 1))))
