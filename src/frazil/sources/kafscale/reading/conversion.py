"""Records of one partition become rows: payloads are fetched, values are checked, rows made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.codec.kfs.records import RECORD_SCHEMA
from frazil.config.models.kafscale_source import Validation
from frazil.errors import MalformedChangeError
from frazil.model.records.rejected_record import RejectReason
from frazil.sources.kafscale.changes.change_events import ChangeEvents
from frazil.sources.kafscale.reading.lfs import EnvelopeResolver
from frazil.sources.kafscale.reading.record_rows import RecordRows
from frazil.sources.kafscale.reading.rejected_rows import RejectedRow, reject_rows, rows_but
from frazil.sources.protocol import PartitionFailure, RecordsCounted, TableRows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from frazil.clients.object_store import Bucket
    from frazil.sources.kafscale.changes.change_events import TopicChanges
    from frazil.sources.kafscale.reading.record_rows import ReadRecords
    from frazil.sources.kafscale.records.topic_plan import TopicPlan
    from frazil.sources.protocol import CountedOutcome, Reading


class RecordConversion:
    """Converts the records of one partition as its topic's plan says."""

    def __init__(self, plan: TopicPlan, partition: int, bucket: Bucket) -> None:
        self._plan = plan
        self._number, self._partition = partition, f"{plan.topic}/{partition}"
        self._resolver = EnvelopeResolver(plan.lfs, bucket, topic=plan.topic, partition=partition)
        self._reads = ChangeEvents(plan) if plan.is_changes else RecordRows(plan, partition)

    def convert(self, records: pa.RecordBatch, within: range) -> Iterator[Reading]:
        """What these records are; ``within`` are the offsets of the segments they are from.

        A PartitionFailure is the last one.
        """
        topic = self._plan.topic
        for part in self._resolver.resolve(records):
            yield from part.rejected
            yield from _counted(topic, part.counts)
            invalid = self._invalid(part.records)
            valid = part.records
            if invalid:
                if self._plan.validation is Validation.STRICT:
                    yield self._stopped(valid, min(invalid), invalid, within)
                    return
                yield from reject_rows(valid, invalid, topic=topic, partition=self._number)
                valid = valid.filter(rows_but(valid.num_rows, invalid))
            if not valid.num_rows:
                continue
            made = self._make(valid)
            yield from made.rejected
            yield from _counted(topic, made.counts)
            if made.rows.num_rows:
                yield TableRows(topic, made.rows)

    def _make(self, records: pa.RecordBatch) -> ReadRecords | TopicChanges:
        if isinstance(self._reads, ChangeEvents):
            return self._reads.read(records.select(RECORD_SCHEMA.names), self._number)
        return self._reads.read(records)

    def _invalid(self, records: pa.RecordBatch) -> Mapping[int, RejectedRow]:
        schema = self._plan.schema
        if schema is None or self._plan.validation is Validation.OFF:
            return {}
        problems = map(schema.problem, records.column("value").to_pylist())
        return {
            row: RejectedRow(RejectReason.INVALID, f"it breaks the schema's rule {problem}")
            for row, problem in enumerate(problems)
            if problem is not None
        }

    def _stopped(
        self, records: pa.RecordBatch, row: int, why: Mapping[int, RejectedRow], within: range
    ) -> PartitionFailure:
        offset = records.column("offset")[row].as_py()
        error = MalformedChangeError(
            f"the record does not match its schema: {why[row].message}.",
            table=self._plan.topic,
            position=f"{self._partition}@{offset}",
            next_step="correct the schema in the registry, or set source.validation: lenient",
        )
        # What a client packed into one payload may have offsets of other segments.
        reached = min(max(offset, within.start), within.stop - 1)
        return PartitionFailure(self._plan.topic, self._partition, reached, error)


def _counted(topic: str, counts: Mapping[CountedOutcome, int]) -> Iterator[RecordsCounted]:
    for outcome, count in counts.items():
        yield RecordsCounted(topic, outcome, count)
