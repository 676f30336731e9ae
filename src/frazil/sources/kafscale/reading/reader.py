"""Segments of one partition read in tasks: from objects to rows, in their order.

How far a partition is read is decided by segments: by their keys and footers, not by the offsets of
records, which a client that packs several batches into one payload gives twice. Whatever is wrong
with a segment concerns it alone, or stops its partition there, as the topic's plan says.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from frazil.clients.object_store import CONNECTIONS
from frazil.codec.kfs.records import decode_records
from frazil.codec.kfs.segment import parse_segment
from frazil.codec.malformed import MalformedFileError
from frazil.config.models.kafscale_source import OnBadSegment
from frazil.errors import StorageError
from frazil.sources.kafscale.reading.conversion import RecordConversion
from frazil.sources.kafscale.reading.segment_faults import SegmentFaults
from frazil.sources.kafscale.segments.planned import JoinedRuns, SegmentRun
from frazil.sources.protocol import PartitionFailure

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from frazil.clients.object_store import Bucket
    from frazil.codec.kfs.segment import BatchFrame, KafscaleSegment
    from frazil.model.records.rejected_record import RejectedRecord
    from frazil.sources.kafscale.records.topic_plan import TopicPlan
    from frazil.sources.kafscale.segments.planned import PlannedSegment
    from frazil.sources.protocol import Reading, Split

# What is on its way at once is in memory, of every task; two are enough to never wait for none.
_FETCHED_BYTES = 16 << 20
_FEWEST_FETCHED = 2
# Segments are joined up to this size, so that what an array costs is shared by many records.
_JOINED_BYTES = 2 << 20
# Where a segment's header has it.
_BASE_OFFSET_AT = 8
# What is kept of decoded records while the rest of their segments is checked.
_MOST_KEPT = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentReader:
    """Reads splits that are a SegmentRun or several; ``topics`` are plans by name. Made to travel.

    Tables have the names of their topics.
    """

    bucket: Bucket
    topics: Mapping[str, TopicPlan]

    def read(self, split: Split) -> Iterator[Reading]:
        """The rows of a split, and what is none; a PartitionFailure is the last of its run.

        Raises StorageError when the store does not answer.
        """
        runs = _runs_of(split.payload)
        segments = [each for run in runs for each in run.segments]
        # One stream of requests for all runs, so that it does not end and begin between them.
        objects = self.bucket.read_each(
            (each.key for each in segments),
            connections=connections_for(max((each.size for each in segments), default=0)),
        )
        for number, run in enumerate(runs):
            own = islice(objects, len(run.segments))
            for reading in _RunReading(self.bucket, self.topics[run.topic], run, own).read():
                yield reading
                if isinstance(reading, PartitionFailure):
                    if number == len(runs) - 1:
                        return
                    # What is behind it in its run is not used.
                    deque(own, maxlen=0)
                    break


def _runs_of(payload: object) -> tuple[SegmentRun, ...]:
    if isinstance(payload, JoinedRuns):
        return payload.runs
    if isinstance(payload, SegmentRun):
        return (payload,)
    raise TypeError("a split of KafScale has a SegmentRun, or several")


def connections_for(largest: int) -> int:
    """How many segments are fetched at a time: small ones by number, large ones by bytes."""
    return max(_FEWEST_FETCHED, min(CONNECTIONS, _FETCHED_BYTES // max(largest, 1)))


@dataclass(frozen=True, eq=False, slots=True)
class _LoadedSegment:
    planned: PlannedSegment
    segment: KafscaleSegment
    data: bytes

    @property
    def offsets(self) -> range:
        """What it is read for."""
        return range(self.planned.from_offset, self.planned.next_offset)

    @property
    def is_joinable(self) -> bool:
        """Whether its records are all to be read, and tell by themselves that they are its own."""
        planned = self.planned
        return planned.from_offset == planned.base_offset and all(
            planned.base_offset <= each.base_offset
            and each.last_offset < planned.next_offset
            # Whether a transaction ends in its own segment must be seen.
            and not (each.is_transactional or each.is_control)
            for each in self.segment.batches
        )


class _RunReading:
    """One reading of one run."""

    def __init__(
        self,
        bucket: Bucket,
        plan: TopicPlan,
        run: SegmentRun,
        objects: Iterable[tuple[str, bytes | StorageError]],
    ) -> None:
        self._objects = objects
        self._run = run
        self._faults = SegmentFaults(plan, run.partition, bucket.name)
        self._conversion = RecordConversion(plan, run.partition, bucket)
        # When a bad segment stops its partition, what was read of it before is not used.
        self._must_check = plan.on_bad_segment is OnBadSegment.DEAD_LETTER

    def read(self) -> Iterator[Reading]:
        group: list[_LoadedSegment] = []
        size = 0
        for found in self._load():
            if isinstance(found, _LoadedSegment) and found.is_joinable:
                group.append(found)
                size += len(found.data)
                if size < _JOINED_BYTES:
                    continue
            # What is wrong with a segment comes after all that is before it.
            yield from self._convert(group)
            group, size = [], 0
            if not isinstance(found, _LoadedSegment):
                yield found
            elif not found.is_joinable:
                yield from self._convert_alone(found)
        yield from self._convert(group)

    def _load(self) -> Iterator[_LoadedSegment | RejectedRecord | PartitionFailure]:
        """Segments, and what is wrong with them or between them, in their order."""
        for planned, (_, data) in zip(self._run.segments, self._objects, strict=True):
            if planned.missing_from is not None:
                yield self._faults.gap(planned.missing_from, planned.base_offset)
            if isinstance(data, StorageError):
                if not data.is_gone:
                    raise data
                yield self._faults.gone(planned)
                continue
            try:
                segment = _parse(planned, data)
            except MalformedFileError as error:
                yield self._faults.bad(planned, data, error)
                continue
            yield _LoadedSegment(planned, segment, data)
            fault = self._faults.end(planned, segment)
            if fault is not None:
                yield fault

    def _convert(self, group: Sequence[_LoadedSegment]) -> Iterator[Reading]:
        if len(group) > 1:
            batches = tuple(chain.from_iterable(each.segment.batches for each in group))
            within = range(group[0].offsets.start, group[-1].offsets.stop)
            pieces = _decode_checked(batches)
            try:
                first = next(pieces, None)
            except MalformedFileError:
                # Which of them it was is seen when each is decoded by itself.
                pass
            else:
                for piece in chain(() if first is None else (first,), pieces):
                    yield from self._conversion.convert(piece, within)
                return
        for each in group:
            yield from self._convert_alone(each)

    def _convert_alone(self, loaded: _LoadedSegment) -> Iterator[Reading]:
        batches, planned = loaded.segment.batches, loaded.planned
        try:
            for piece in _decode_checked(batches) if self._must_check else decode_records(batches):
                wanted = piece
                if planned.from_offset > planned.base_offset:
                    since = pc.greater_equal(piece.column("offset"), planned.from_offset)
                    wanted = piece.filter(since)
                yield from self._conversion.convert(wanted, loaded.offsets)
        except MalformedFileError as error:
            yield self._faults.bad(planned, loaded.data, _locate(batches, error))


def _parse(planned: PlannedSegment, data: bytes) -> KafscaleSegment:
    segment = parse_segment(data)
    if segment.base_offset != planned.base_offset:
        what = f"expected the base offset {planned.base_offset}, found {segment.base_offset}"
        raise MalformedFileError(what, offset=_BASE_OFFSET_AT)
    return segment


def _decode_checked(batches: tuple[BatchFrame, ...]) -> Iterator[pa.RecordBatch]:
    """Records as ``decode_records`` has them, the first of them when all were decoded."""
    pieces: list[pa.RecordBatch] = []
    size = 0
    for piece in decode_records(batches):
        size += piece.nbytes
        if size > _MOST_KEPT:
            pieces.clear()
        else:
            pieces.append(piece)
    yield from pieces if size <= _MOST_KEPT else decode_records(batches)


def _locate(batches: Sequence[BatchFrame], error: MalformedFileError) -> MalformedFileError:
    """The error with the place in the file where its batch is: it counts in what was joined."""
    for batch in batches:
        if batch.is_transactional or batch.is_control:
            continue
        try:
            for _ in decode_records([batch]):
                pass
        except MalformedFileError as found:
            return MalformedFileError(found.what, offset=batch.at)
    return error
