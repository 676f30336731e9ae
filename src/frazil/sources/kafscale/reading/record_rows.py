"""Rows of a topic that is a table of its records: one row for each, and none is ever changed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.config.models.kafscale_source import OnWrongValue
from frazil.model.change import Operation
from frazil.model.records.rejected_record import RejectReason
from frazil.model.schema.types import Primitive
from frazil.sources.change_schema import COMMITTED_AT_TYPE, change_schema
from frazil.sources.kafscale.reading.header_text import header_texts
from frazil.sources.kafscale.reading.rejected_rows import RejectedRow, reject_rows, rows_but
from frazil.sources.kafscale.records.json_columns import JsonColumns, ValueProblemKind
from frazil.sources.protocol import ChangeColumn, CountedOutcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from frazil.model.records.rejected_record import RejectedRecord
    from frazil.sources.kafscale.records.json_columns import ValueProblem
    from frazil.sources.kafscale.records.topic_plan import TopicPlan

# The columns of every such table, as KafScale's processor makes them: name, type, required.
BASE_COLUMNS = (
    ("record_id", Primitive.STRING, True),
    ("topic", Primitive.STRING, True),
    ("partition", Primitive.INT, True),
    ("offset", Primitive.LONG, True),
    ("timestamp_ms", Primitive.LONG, True),
    ("key", Primitive.BINARY, False),
    ("value", Primitive.BINARY, False),
    ("headers", Primitive.STRING, False),
)
# And where the fields of envelopes are kept.
LFS_COLUMNS = (
    ("lfs_content_type", Primitive.STRING, False),
    ("lfs_blob_size", Primitive.LONG, False),
    ("lfs_checksum", Primitive.STRING, False),
    ("lfs_checksum_alg", Primitive.STRING, False),
    ("lfs_bucket", Primitive.STRING, False),
    ("lfs_key", Primitive.STRING, False),
)

# The years 1 to 9999, which is what every reader of a table can show.
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999
_NO_TIMESTAMP = -1


@dataclass(frozen=True, eq=False, slots=True)
class ReadRecords:
    """Rows as ``change_schema`` has them, the records that are none, and what is only counted."""

    rows: pa.RecordBatch
    rejected: tuple[RejectedRecord, ...]
    counts: Mapping[CountedOutcome, int]


class RecordRows:
    """Makes the rows of one partition."""

    def __init__(self, plan: TopicPlan, partition: int) -> None:
        self._plan = plan
        self._partition = partition
        self._schema = change_schema(plan.columns, plan.key)
        self._json = JsonColumns(plan.fields) if plan.fields else None

    def read(self, records: pa.RecordBatch) -> ReadRecords:
        """The rows of records, which may have columns for the fields of envelopes as well."""
        if self._json is None:
            return ReadRecords(self._make(records, {}), (), {})
        read = self._json.read(records.column("value"))
        names = [each.name for each in self._plan.fields]
        fields = dict(zip(names, read.arrays, strict=True))
        wrong, nulled = _settle(read.problems, self._plan)
        rejected: tuple[RejectedRecord, ...] = ()
        if wrong:
            topic, partition = self._plan.topic, self._partition
            rejected = reject_rows(records, wrong, topic=topic, partition=partition)
            kept = rows_but(records.num_rows, wrong)
            records = records.filter(kept)
            fields = {name: values.filter(kept) for name, values in fields.items()}
        counts = {CountedOutcome.NULLED: nulled} if nulled else {}
        return ReadRecords(self._make(records, fields), rejected, counts)

    def _make(self, records: pa.RecordBatch, fields: Mapping[str, pa.Array]) -> pa.RecordBatch:
        count = records.num_rows
        topic, partition = self._plan.topic, self._partition
        offsets = records.column("offset")
        origins = _origins(f"{topic}:{partition}:", offsets)
        values = {
            **fields,
            **{name: records.column(name) for name in records.schema.names},
            "record_id": origins,
            "topic": pa.repeat(pa.scalar(topic), count),
            "partition": pa.repeat(pa.scalar(partition, pa.int32()), count),
            "headers": header_texts(records.column("headers")),
        }
        by_name = {
            **{str(each.number): values.get(each.name) for each in self._plan.columns},
            ChangeColumn.OPERATION: pa.repeat(pa.scalar(Operation.INSERT.value), count),
            ChangeColumn.POSITION: offsets.view(pa.uint64()),
            # Ordinal 0 is that of a TRUNCATE, which goes before the records of all partitions.
            ChangeColumn.ORDINAL: pa.repeat(pa.scalar(partition + 1, pa.uint64()), count),
            ChangeColumn.COMMITTED_AT: _moments(records.column("timestamp_ms")),
            ChangeColumn.ORIGIN: origins,
        }
        arrays = (_typed(by_name.get(field.name), field.type, count) for field in self._schema)
        return pa.RecordBatch.from_arrays(list(arrays), schema=self._schema)


def _typed(values: pa.Array | None, type_: pa.DataType, count: int) -> pa.Array:
    """Values for a column: it may be wider than what was read, or one that is not read any more."""
    if values is None:
        return pa.nulls(count, type_)
    return values if values.type == type_ else values.cast(type_)


def _origins(prefix: str, offsets: pa.Int64Array) -> pa.StringArray:
    """Offsets with what they count in before them."""
    digits = offsets.cast(pa.string())
    bounds = pc.min_max(pc.binary_length(digits)).as_py()
    if not len(digits) or bounds["min"] != bounds["max"] or digits.offset:
        return pc.binary_join_element_wise(prefix, digits, "")
    # Most often all are of one length: then they are rows of a matrix, several times faster.
    before, length, count = prefix.encode(), bounds["max"], len(digits)
    texts = np.empty((count, len(before) + length), np.uint8)
    texts[:, : len(before)] = np.frombuffer(before, np.uint8)
    texts[:, len(before) :] = np.frombuffer(digits.buffers()[2], np.uint8, count * length).reshape(
        count, length
    )
    ends = np.arange(0, texts.size + 1, texts.shape[1], dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(texts))


def _moments(milliseconds: pa.Int64Array) -> pa.TimestampArray:
    """When records were made; null where a client did not say, or nonsense."""
    known = pc.and_(
        pc.and_(pc.greater_equal(milliseconds, _FIRST_MS), pc.less_equal(milliseconds, _LAST_MS)),
        pc.not_equal(milliseconds, _NO_TIMESTAMP),
    )
    if not pc.all(known).as_py():
        milliseconds = pc.if_else(known, milliseconds, None)
    return pc.multiply(milliseconds, 1000).view(COMMITTED_AT_TYPE)


def _settle(
    problems: Iterable[ValueProblem], plan: TopicPlan
) -> tuple[Mapping[int, RejectedRow], int]:
    """The rows to be rejected, each for one reason, and how many values of the others are null."""
    required = {each.name for each in plan.fields if each.required}
    becomes_null = plan.on_wrong_value is OnWrongValue.NULL
    rejected: dict[int, RejectedRow] = {}
    nulled = Counter[int]()
    for each in problems:
        where = "its value" if each.column is None else f"column {each.column}"
        message = f"{where}: {each.kind.value}"
        is_required = bool(required) if each.column is None else each.column in required
        if each.kind is ValueProblemKind.MISSING or (is_required and becomes_null):
            # A column that must have a value can have no null instead.
            rejected[each.row] = RejectedRow(RejectReason.INVALID, message)
        elif each.kind is ValueProblemKind.NOT_JSON and is_required:
            rejected[each.row] = RejectedRow(RejectReason.INVALID, message)
        elif becomes_null:
            nulled[each.row] += 1
        else:
            why = RejectedRow(RejectReason.UNREPRESENTABLE, message)
            rejected.setdefault(each.row, why)
    return rejected, sum(count for row, count in nulled.items() if row not in rejected)
