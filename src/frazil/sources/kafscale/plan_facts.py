"""What the next run would do with topics: where their partitions continue, and what waits there.

Partitions are looked up at once; segments are listed when a table is asked for, from the position
of its marker on, so that a plan costs what is new and not what is there.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from frazil.errors import FrazilError
from frazil.model import humanize
from frazil.sources.kafscale.learnt_columns import learn_columns
from frazil.sources.kafscale.segments.starts import Beginnings, continue_at, parse_offsets
from frazil.sources.kafscale.source_identity import (
    explain_topic_change,
    require_same_source,
    source_identity,
)
from frazil.sources.plan_facts import PlannedTable, SourcePreparation, WaitingChanges

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from frazil.clients.object_store import Bucket
    from frazil.config import TableSettings
    from frazil.config.models.kafscale_source import KafscaleSection, TopicColumn
    from frazil.model.marker import Marker, Position
    from frazil.model.source_table import SourceTable
    from frazil.sources.kafscale.health import PublishedState
    from frazil.sources.kafscale.segments.discovery import SegmentListing, SegmentObject
    from frazil.sources.kafscale.segments.object_keys import TopicPartition
    from frazil.sources.kafscale.topic_tables import TopicTables
    from frazil.sources.protocol import TableProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingPartition:
    """What a run finds in a partition: from ``offset`` to before ``newest``.

    ``missing_until`` is where the first segment begins when that is later.
    """

    partition: str
    offset: int
    newest: int
    segments: int
    bytes: int
    missing_until: int | None = None

    @property
    def lag(self) -> int:
        """Offsets that were not captured yet."""
        return max(0, self.newest - self.offset)

    def describe(self) -> str:
        """For people."""
        if not self.segments:
            return f"at offset {self.offset}: nothing waits"
        text = (
            f"from offset {self.offset} to {self.newest}, {humanize.number(self.lag)} behind: "
            f"{humanize.counted(self.segments, 'segment')}, {humanize.size(self.bytes)}"
        )
        if self.missing_until is None:
            return text
        return f"{text}; offsets {self.offset} to {self.missing_until - 1} are missing"

    def document(self) -> dict[str, object]:
        """For programs."""
        return {**asdict(self), "lag": self.lag}


class KafscalePlanFacts:
    """The topics of a section, with the partitions that were found when it was made."""

    def __init__(
        self,
        section: KafscaleSection,
        bucket: Bucket,
        *,
        listing: SegmentListing,
        partitions: Collection[TopicPartition],
        tables: TopicTables,
        published: PublishedState,
    ) -> None:
        self._section = section
        self._bucket = bucket
        self._listing = listing
        self._partitions = frozenset(partitions)
        self._tables = tables
        self._published = published
        self._mirrors = {each.topic: each for each in section.topics}
        # The newest segment that waits in each partition of a topic: records may bring columns.
        self._newest: dict[str, list[SegmentObject]] = {}

    @cached_property
    def tables(self) -> Mapping[str, SourceTable]:
        """The mapped topics, also those without a segment yet."""
        return {name: self._tables.declared(name) for name in self._tables.names}

    def selects(self, table: str) -> bool:
        """Whether it is mapped."""
        return table in self._tables.names

    def explain_identity_change(
        self,
        before: str,
        now: str,
        *,
        was_gone: bool = False,  # noqa: ARG002 - a topic is known by its name alone
    ) -> tuple[str, ...]:
        """As the source does."""
        return explain_topic_change(before, now)

    def plan_preparation(self, tables: Collection[str], since: Marker | None) -> SourcePreparation:
        """Nothing is made; a position of another bucket is refused."""
        mine = sorted(each for each in self._partitions if each.topic in tables)
        identity = source_identity(self._section)
        try:
            require_same_source(identity, since)
        except FrazilError as error:
            return SourcePreparation(problem=error)
        topics = humanize.counted(len({each.topic for each in mine}), "topic")
        return SourcePreparation(
            lines=(
                ("segments", f"{identity}: {humanize.counted(len(mine), 'partition')} of {topics}"),
            ),
            document={"identity": identity, "partitions": [str(each) for each in mine]},
        )

    def load_waiting(
        self, table: str, at: TableProgress, acknowledged: Position | None
    ) -> WaitingChanges:
        """The segments behind each partition's position."""
        mine = sorted(each for each in self._partitions if each.topic == table)
        recorded = parse_offsets(acknowledged)
        unknown = [each for each in mine if each not in recorded]
        beginnings = Beginnings(self._listing, self._load_processed)
        recorded |= beginnings.find(unknown, mine, recorded, {table: at})
        self._newest[table] = []
        found = [self._load(each, continue_at(each, at, recorded[each])) for each in mine]
        segments, size = sum(each.segments for each in found), sum(each.bytes for each in found)
        text = (
            f"{humanize.counted(segments, 'segment')} of {humanize.size(size)} wait in the bucket"
        )
        return WaitingChanges(
            has_any=segments > 0,
            text=text if segments else "nothing: no segment waits",
            lines=tuple((each.partition, each.describe()) for each in found),
            document={
                "segments": segments,
                "bytes": size,
                "partitions": [each.document() for each in found],
            },
        )

    def describe(self, table: str, settings: TableSettings, shape: str) -> PlannedTable:  # noqa: ARG002 - a topic has its own
        """The table as its next records need it; asks the registry where it has the columns."""
        newest = self._newest.get(table, [])
        learnt: tuple[TopicColumn, ...] = ()
        if newest and self._tables.learns_columns(table):
            keys = [each.key for each in newest]
            learnt = learn_columns(self._bucket, keys, self._tables.envelope(table))
        found, _ = self._tables.load(table, shape, learnt)
        no_mirror = (
            "it is a table of records"
            if self._mirrors[table].table is not None
            else "its topic names none"
        )
        return PlannedTable(table=found, no_key=no_mirror)

    def _load(self, partition: TopicPartition, offset: int) -> WaitingPartition:
        found = self._listing.list_from(partition, offset).segments
        newest, missing_until = offset, None
        if found:
            self._newest.setdefault(partition.topic, []).append(found[-1])
            end = self._listing.read_ends(found[-1:]).get(found[-1].key)
            last = None if end is None else end.last_offset
            # The footer that a broker filled with nonsense says less than the key.
            newest = max(offset, found[-1].base_offset + 1, 0 if last is None else last + 1)
            missing_until = first if (first := found[0].base_offset) > offset else None
        return WaitingPartition(
            partition=str(partition),
            offset=offset,
            newest=newest,
            segments=len(found),
            bytes=sum(each.size for each in found),
            missing_until=missing_until,
        )

    def _load_processed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        following = self._published.offsets(partitions)
        return {each: following.get(each, 0) - 1 for each in partitions}
