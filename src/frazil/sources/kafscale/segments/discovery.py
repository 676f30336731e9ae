"""Finds segments in the bucket; a listing costs what is new, not what is there.

A segment exists once both of its files do: a failed upload leaves one of them behind, and its
records come again with other offsets. Segments of a partition are read in the order of their base
offsets, each completely, so that what follows a position begins at it or later.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from frazil.clients.object_store import CONNECTIONS
from frazil.codec.kfs.segment import END_MAGIC, FOOTER
from frazil.sources.kafscale.segments.object_keys import (
    FileKind,
    TopicPartition,
    is_padded,
    key_before,
    keys_without_zeros,
    parse_key,
    partition_prefix,
    topics_prefix,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from frazil.clients.object_store import Bucket, StoredObject

# How far back an earlier segment is looked for at first; then so many times as far.
_NEAR_OFFSETS, _FURTHER = 1 << 10, 1 << 5


@dataclass(frozen=True, slots=True)
class SegmentObject:
    """A segment in the bucket."""

    partition: TopicPartition
    base_offset: int
    key: str
    size: int


@dataclass(frozen=True, slots=True)
class SegmentBound:
    """How much a listing needs to bring at least; it ends with what it has then.

    That is so many segments, or one more than have so many bytes together: where that one begins
    is where the last of them ends, should its footer not say it.
    """

    bytes: int
    segments: int


@dataclass(frozen=True, slots=True)
class ListedSegments:
    """Segments in their order; there are ``more`` when a bound ended the listing."""

    segments: tuple[SegmentObject, ...]
    more: bool = False


@dataclass(frozen=True, slots=True)
class SegmentEnd:
    """What the last bytes of a segment say: its last offset, unless they are no footer."""

    last_offset: int | None


class SegmentListing:
    """The segments of some topics in one bucket."""

    def __init__(self, bucket: Bucket, namespace: str) -> None:
        self._bucket = bucket
        self._namespace = namespace

    def list_topics(self) -> tuple[str, ...]:
        """Whatever has a topic's place in the bucket."""
        return self._bucket.list_folders(topics_prefix(self._namespace))

    def list_partitions(self, topics: Collection[str]) -> frozenset[TopicPartition]:
        """The partitions of these topics that have anything below their prefix."""
        with ThreadPoolExecutor(CONNECTIONS) as threads:
            return frozenset().union(*threads.map(self._list_partitions, topics))

    def _list_partitions(self, topic: str) -> frozenset[TopicPartition]:
        prefix = f"{topics_prefix(self._namespace)}{topic}/"
        # Whatever a partition's segment would be called.
        named = (
            parse_key(f"{prefix}{name}/segment-0.kfs", self._namespace)
            for name in self._bucket.list_folders(prefix)
        )
        return frozenset(each.partition for each in named if each is not None)

    def list_from(
        self, partition: TopicPartition, offset: int, bound: SegmentBound | None = None
    ) -> ListedSegments:
        """The segments that have this offset or later ones, in their order.

        Usually the first of them begins with the offset. When it does not, because offsets are
        missing or the position was set by hand, an earlier segment may reach beyond the offset.
        """
        found = self.list_new(partition, offset, bound)
        if offset and (not found.segments or found.segments[0].base_offset > offset):
            earlier = self._last_before(partition, offset)
            if earlier is not None and self._reaches(earlier, offset):
                return ListedSegments((earlier, *found.segments), found.more)
        return found

    def list_new(
        self, partition: TopicPartition, offset: int, bound: SegmentBound | None = None
    ) -> ListedSegments:
        """The segments that begin with this offset or later, in their order."""
        listed = self._list(partition, key_before(self._namespace, partition, offset), bound)
        return ListedSegments(
            tuple(each for each in listed.segments if each.base_offset >= offset), listed.more
        )

    def first_offset(self, partition: TopicPartition) -> int:
        """Where a partition begins: with its oldest segment, or with what will be its first one."""
        found = self.list_new(partition, 0, SegmentBound(bytes=1, segments=1)).segments
        if found:
            return found[0].base_offset
        objects = self._bucket.list_after(partition_prefix(self._namespace, partition), "")
        named = (parse_key(each.key, self._namespace) for each in objects)
        return min((each.base_offset for each in named if each is not None), default=0)

    def read_ends(self, segments: Iterable[SegmentObject]) -> Mapping[str, SegmentEnd]:
        """What the footers of these say, by key; one that is gone is left out."""
        keys = [each.key for each in segments]
        ends = {}
        for key, found in self._bucket.read_each_end(keys, FOOTER.size):
            if isinstance(found, bytes):
                ends[key] = _parse_end(found)
            elif not found.is_gone:
                raise found
        return ends

    def _list(
        self, partition: TopicPartition, after: str, bound: SegmentBound | None = None
    ) -> ListedSegments:
        prefix = partition_prefix(self._namespace, partition)
        objects = self._bucket.list_after(prefix, after)
        if bound is None:
            return ListedSegments(tuple(complete_segments(objects, self._namespace)))
        taken = _Bounded(objects, bound, self._namespace)
        found = tuple(complete_segments(taken.objects(), self._namespace))
        if not taken.ended:
            return ListedSegments(found)
        # Names without zeros in front come after all others, wherever their offsets belong.
        without = self._bucket.list_after(prefix, keys_without_zeros(self._namespace, partition))
        last = max((each.base_offset for each in found), default=-1)
        others = complete_segments(without, self._namespace)
        joined = {(each.base_offset, each.key): each for each in found}
        joined |= {
            (each.base_offset, each.key): each for each in others if each.base_offset <= last
        }
        return ListedSegments(tuple(joined[each] for each in sorted(joined)), more=True)

    def _last_before(self, partition: TopicPartition, offset: int) -> SegmentObject | None:
        """The segment that begins last before this offset; looked for further and further back."""
        prefix = partition_prefix(self._namespace, partition)
        distance = _NEAR_OFFSETS
        while True:
            begin = max(0, offset - distance)
            ends = key_before(self._namespace, partition, offset)
            near = _until(
                self._bucket.list_after(prefix, key_before(self._namespace, partition, begin)), ends
            )
            without = self._bucket.list_after(
                prefix, keys_without_zeros(self._namespace, partition)
            )
            found = complete_segments(chain(near, without), self._namespace)
            earlier = [each for each in found if each.base_offset < offset]
            if earlier or begin == 0:
                return max(earlier, key=lambda each: each.base_offset, default=None)
            distance *= _FURTHER

    def _reaches(self, segment: SegmentObject, offset: int) -> bool:
        end = self.read_ends([segment]).get(segment.key)
        # One that is damaged is reported by the task that reads it.
        return end is not None and end.last_offset is not None and end.last_offset >= offset


class _Bounded:
    """Takes objects of a listing until they make as many segments as are wanted."""

    def __init__(
        self, objects: Iterable[StoredObject], bound: SegmentBound, namespace: str
    ) -> None:
        self._objects = objects
        self._bound = bound
        self._namespace = namespace
        self.ended = False

    def objects(self) -> Iterator[StoredObject]:
        size = count = 0
        files: dict[int, dict[FileKind, int]] = {}
        for each in self._objects:
            yield each
            named = parse_key(each.key, self._namespace)
            if named is None or not is_padded(each.key):
                continue
            # The two files of one offset follow each other.
            found = files.setdefault(named.base_offset, {})
            found[named.kind] = each.size
            if len(found) < len(FileKind):
                continue
            count += 1
            if size >= self._bound.bytes or count >= self._bound.segments:
                self.ended = True
                return
            size += found[FileKind.SEGMENT]


def _until(objects: Iterable[StoredObject], key: str) -> Iterator[StoredObject]:
    for each in objects:
        if each.key >= key:
            return
        yield each


def _parse_end(footer: bytes) -> SegmentEnd:
    if len(footer) == FOOTER.size:
        _, last_offset, magic = FOOTER.unpack(footer)
        if magic == END_MAGIC:
            return SegmentEnd(int(last_offset))
    return SegmentEnd(None)


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
