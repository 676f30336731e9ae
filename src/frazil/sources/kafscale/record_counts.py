"""Offsets of the records in segments, to compare tables of records with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from frazil.codec.kfs.records import decode_records
from frazil.codec.kfs.segment import parse_segment
from frazil.codec.malformed import MalformedFileError
from frazil.config.models.kafscale_source import LfsMode
from frazil.errors import StorageError
from frazil.sources.kafscale.reading.lfs import envelope_rows
from frazil.sources.kafscale.reading.rejected_rows import rows_but
from frazil.sources.kafscale.segments.object_keys import TopicPartition
from frazil.sources.protocol import Split
from frazil.sources.record_source import RecordOffsets

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from frazil.clients.object_store import Bucket
    from frazil.config.models.kafscale_source import KafscaleSection
    from frazil.model.marker import Position
    from frazil.sources.kafscale.segments.discovery import SegmentListing, SegmentObject

PARTITION_COLUMN, OFFSET_COLUMN = "partition", "offset"
# Enough that a task has something to do for its start, and little enough to share fairly.
_SPLIT_BYTES: Final = 16 << 20
_SPLIT_SEGMENTS: Final = 512


@dataclass(frozen=True, slots=True)
class CountedSegments:
    """The payload of a split: segments of one partition, by their keys."""

    partition: int
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SegmentOffsets:
    """Reads offsets and nothing else; with ``skips_envelopes``, not those of envelopes."""

    bucket: Bucket
    skips_envelopes: bool

    def read(self, split: Split) -> Iterator[tuple[int, pa.Array]]:
        """The offsets of a split; a segment that does not decode has none."""
        counted = split.payload
        if not isinstance(counted, CountedSegments):
            raise TypeError("a split of a count has CountedSegments")
        for _, data in self.bucket.read_each(counted.keys):
            if isinstance(data, StorageError):
                raise data
            for offsets in self._decode(data):
                yield counted.partition, offsets

    def _decode(self, data: bytes) -> Sequence[pa.Array]:
        """Of all records or of none: a bad segment is one dead letter."""
        try:
            return [self._offsets(piece) for piece in decode_records(parse_segment(data).batches)]
        except MalformedFileError:
            return ()

    def _offsets(self, records: pa.RecordBatch) -> pa.Array:
        offsets = records.column(OFFSET_COLUMN)
        if self.skips_envelopes:
            skipped = envelope_rows(records.column("value")).to_pylist()
            return offsets.filter(rows_but(len(offsets), skipped))
        return offsets


class KafscaleRecords:
    """The records of topics that are tables of records."""

    def __init__(self, section: KafscaleSection, bucket: Bucket, listing: SegmentListing) -> None:
        self._bucket = bucket
        self._listing = listing
        self._topics = {each.topic: each for each in section.topics if each.table is not None}

    def has(self, table: str) -> bool:
        """Whether the topic is mapped to such a table."""
        return table in self._topics

    def until_now(self) -> KafscaleRecords:
        """The marker says what was captured."""
        return self

    def offsets_of(self, table: str, until: Position) -> RecordOffsets:
        """The records of all segments that begin before the marker: each was taken completely."""
        if isinstance(until, str):
            raise TypeError("positions of this source are offsets by partition")
        splits: list[Split] = []
        begins = {}
        partitions = {TopicPartition.parse(name): offset for name, offset in until.items()}
        for partition, offset in sorted(partitions.items()):
            listed = self._listing.list_new(partition, 0).segments
            taken = [each for each in listed if each.base_offset < offset]
            if taken:
                begins[partition.partition] = taken[0].base_offset
                splits += _split(partition.partition, taken)
        mode = self._topics[table].lfs.mode
        return RecordOffsets(
            reader=SegmentOffsets(self._bucket, skips_envelopes=mode is LfsMode.SKIP),
            splits=tuple(splits),
            partitions={each.partition: str(each) for each in partitions},
            begins=begins,
            columns=(PARTITION_COLUMN, OFFSET_COLUMN),
            partition_sql=f"`{PARTITION_COLUMN}`",
            offset_sql=f"`{OFFSET_COLUMN}`",
        )


def _split(partition: int, segments: Sequence[SegmentObject]) -> Iterator[Split]:
    keys: list[str] = []
    size = 0
    for each in segments:
        keys.append(each.key)
        size += each.size
        if size >= _SPLIT_BYTES or len(keys) >= _SPLIT_SEGMENTS:
            yield Split(CountedSegments(partition, tuple(keys)), size)
            keys, size = [], 0
    if keys:
        yield Split(CountedSegments(partition, tuple(keys)), size)
