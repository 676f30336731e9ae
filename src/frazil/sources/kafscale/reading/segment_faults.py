"""What is wrong with segments: a dead letter, or the end of their partition for now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.config.models.kafscale_source import OnBadSegment, OnGap
from frazil.errors import MalformedChangeError, MissingSegmentError, PositionLostError
from frazil.model.command import command
from frazil.model.printable import printable
from frazil.model.records.rejected_record import RejectedRecord, RejectReason
from frazil.sources.protocol import PartitionFailure

if TYPE_CHECKING:
    from frazil.codec.kfs.segment import KafscaleSegment
    from frazil.codec.malformed import MalformedFileError
    from frazil.errors import SourceError
    from frazil.sources.kafscale.records.topic_plan import TopicPlan
    from frazil.sources.kafscale.segments.planned import PlannedSegment

# Enough to see what it is; the segment itself stays where it is.
MOST_PAYLOAD_BYTES = 1 << 20


class SegmentFaults:
    """Applies the policies of one topic to one partition."""

    def __init__(self, plan: TopicPlan, partition: int, bucket: str) -> None:
        self._plan = plan
        self._number, self._partition = partition, f"{plan.topic}/{partition}"
        self._bucket = bucket

    def gap(self, first: int, following: int) -> RejectedRecord | PartitionFailure:
        """Offsets are missing from the first one up to the one that follows them."""
        message = f"the offsets {first} to {following - 1} are missing."
        if self._plan.on_gap is OnGap.RECORD:
            return self._rejected(first, RejectReason.GAP, message)
        return self._stopped(first, PositionLostError, message, "set source.on_gap: record")

    def end(
        self, planned: PlannedSegment, segment: KafscaleSegment
    ) -> RejectedRecord | PartitionFailure | None:
        """What is wrong between a segment and the one after it; None where nothing is."""
        last, is_known = segment.footer_offset, True
        if last < planned.base_offset - 1:
            # What a broker writes about a payload of several batches may be nonsense; what these
            # have as offsets, too.
            last, is_known = segment.last_offset, False
        if last + 1 < planned.next_offset:
            return self.gap(max(last + 1, planned.from_offset), planned.next_offset)
        if last + 1 == planned.next_offset or not is_known or self._plan.on_gap is OnGap.RECORD:
            return None
        message = (
            f"segment {printable(planned.key)} has offsets up to {last}, and the next one begins "
            f"with {planned.next_offset}."
        )
        next_step = f"{self._decode(planned)}, or set source.on_gap: record to read both"
        # Before it: there is no offset in it up to which it could be taken alone.
        return self._stopped(planned.from_offset, PositionLostError, message, next_step)

    def gone(self, planned: PlannedSegment) -> RejectedRecord | PartitionFailure:
        """A segment that was listed is not there any more, and its offsets are missing."""
        if self._plan.on_gap is OnGap.RECORD:
            return self.gap(planned.from_offset, planned.next_offset)
        message = f"segment {printable(planned.key)} is not in the bucket any more."
        next_step = "restore it, or set source.on_gap: record"
        return self._stopped(planned.from_offset, MissingSegmentError, message, next_step)

    def bad(
        self, planned: PlannedSegment, data: bytes, error: MalformedFileError
    ) -> RejectedRecord | PartitionFailure:
        """A segment does not decode."""
        message = f"segment {printable(planned.key)}, {error}."
        if self._plan.on_bad_segment is OnBadSegment.STOP:
            next_step = f"{self._decode(planned)}, or set source.on_bad_segment: dead_letter"
            return self._stopped(planned.from_offset, MalformedChangeError, message, next_step)
        if len(data) > MOST_PAYLOAD_BYTES:
            message += f" Here are its first {MOST_PAYLOAD_BYTES} of {len(data)} bytes."
        payload = data[:MOST_PAYLOAD_BYTES]
        return self._rejected(planned.from_offset, RejectReason.MALFORMED, message, payload)

    def _rejected(
        self, offset: int, reason: RejectReason, message: str, payload: bytes = b""
    ) -> RejectedRecord:
        return RejectedRecord(
            table=self._plan.topic,
            partition=str(self._number),
            offset=offset,
            reason=reason,
            message=message,
            payload=payload,
        )

    def _stopped(
        self, offset: int, kind: type[SourceError], message: str, next_step: str
    ) -> PartitionFailure:
        error = kind(
            message,
            table=self._plan.topic,
            position=f"{self._partition}@{offset}",
            next_step=next_step,
        )
        return PartitionFailure(self._plan.topic, self._partition, offset, error)

    def _decode(self, planned: PlannedSegment) -> str:
        return command("decode", "segment", f"s3://{self._bucket}/{planned.key}")
