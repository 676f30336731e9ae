"""Finds segments in the bucket; a listing costs what is new, not what is there.

A segment exists once both of its files do: a failed upload leaves one of them behind, and its
records come again with other offsets. Segments of a partition are read in the order of their base
offsets, each completely, so that what follows a position begins at it or later.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from frazil.codec.kfs.segment import END_MAGIC, FOOTER
from frazil.sources.kafscale.segments.object_keys import (
    FileKind,
    TopicPartition,
    key_before,
    parse_key,
    partition_prefix,
    topics_prefix,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from frazil.clients.object_store import Bucket, StoredObject

# More than a page of a listing: a partition with as much that is no segment is not looked through.
_MOST_LOOKED_AT: Final = 2000


@dataclass(frozen=True, slots=True)
class SegmentObject:
    """A segment in the bucket."""

    partition: TopicPartition
    base_offset: int
    key: str
    size: int


class SegmentListing:
    """The segments of some topics in one bucket."""

    def __init__(self, bucket: Bucket, namespace: str) -> None:
        self._bucket = bucket
        self._namespace = namespace

    def list_topics(self) -> tuple[str, ...]:
        """What could be topics: the names that have anything below them."""
        return self._bucket.list_folders(topics_prefix(self._namespace))

    def list_partitions(self, topics: Collection[str]) -> frozenset[TopicPartition]:
        """The partitions of these topics that have anything below their prefix."""
        found = set()
        for topic in topics:
            prefix = f"{topics_prefix(self._namespace)}{topic}/"
            for name in self._bucket.list_folders(prefix):
                # Whatever a partition's segment would be called.
                named = parse_key(f"{prefix}{name}/segment-0.kfs", self._namespace)
                if named is not None:
                    found.add(named.partition)
        return frozenset(found)

    def list_from(self, partition: TopicPartition, offset: int) -> tuple[SegmentObject, ...]:
        """The segments that have this offset or later ones, in their order.

        Usually the first of them begins with the offset. When it does not, because offsets are
        missing or the position was set by hand, an earlier segment may reach beyond the offset.
        """
        found = self.list_new(partition, offset)
        if offset and (not found or found[0].base_offset > offset):
            earlier = self._last_before(partition, offset)
            if earlier is not None and self._last_offset(earlier) >= offset:
                return (earlier, *found)
        return found

    def list_new(self, partition: TopicPartition, offset: int) -> tuple[SegmentObject, ...]:
        """The segments that begin with this offset or later, in their order."""
        listed = self._list(partition, key_before(self._namespace, partition, offset))
        return tuple(each for each in listed if each.base_offset >= offset)

    def find_first(self, partition: TopicPartition) -> SegmentObject | None:
        """The oldest segment, found without listing all others."""
        objects = self._bucket.list_after(partition_prefix(self._namespace, partition), "")
        return next(complete_segments(islice(objects, _MOST_LOOKED_AT), self._namespace), None)

    def read_last_offset(self, segment: SegmentObject) -> int | None:
        """What its footer says; None if there is no footer."""
        footer = self._bucket.read_end(segment.key, FOOTER.size)
        if len(footer) == FOOTER.size:
            _, last_offset, magic = FOOTER.unpack(footer)
            if magic == END_MAGIC:
                return int(last_offset)
        return None

    def _list(self, partition: TopicPartition, after: str) -> tuple[SegmentObject, ...]:
        objects = self._bucket.list_after(partition_prefix(self._namespace, partition), after)
        return tuple(complete_segments(objects, self._namespace))

    def _last_before(self, partition: TopicPartition, offset: int) -> SegmentObject | None:
        earlier = (each for each in self._list(partition, "") if each.base_offset < offset)
        return max(earlier, key=lambda each: each.base_offset, default=None)

    def _last_offset(self, segment: SegmentObject) -> int:
        found = self.read_last_offset(segment)
        # Damaged without one, which the task that reads it reports.
        return segment.base_offset if found is None else found


def complete_segments(objects: Iterable[StoredObject], namespace: str) -> Iterator[SegmentObject]:
    """Segments whose two files are there, in the order of their base offsets."""
    segments: dict[tuple[TopicPartition, int], SegmentObject] = {}
    indexed = set()
    for each in objects:
        named = parse_key(each.key, namespace)
        if named is None:
            continue
        identity = (named.partition, named.base_offset)
        if named.kind is FileKind.INDEX:
            indexed.add(identity)
        else:
            segments[identity] = SegmentObject(*identity, each.key, each.size)
    for identity in sorted(segments.keys() & indexed):
        yield segments[identity]
