"""Topics of changes for tests: plans, records, and what their rows come to."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from frazil.codec.kfs.records import RECORD_SCHEMA
from frazil.config.models.kafscale_source import (
    Envelope,
    Lfs,
    OnBadSegment,
    OnGap,
    OnWrongValue,
    TopicColumn,
    TopicColumnType,
    Validation,
)
from frazil.model.schema.types import Primitive
from frazil.model.source_table import SourceColumn
from frazil.sources.kafscale.records.topic_plan import TopicPlan

if TYPE_CHECKING:
    from collections.abc import Sequence

TYPES = {
    "boolean": Primitive.BOOLEAN,
    "int": Primitive.INT,
    "long": Primitive.LONG,
    "float": Primitive.FLOAT,
    "double": Primitive.DOUBLE,
    "string": Primitive.STRING,
    "binary": Primitive.BINARY,
    "timestamp": Primitive.TIMESTAMPTZ,
    "date": Primitive.DATE,
}
PRODUCED_MS = 1_700_000_000_000


def change_plan(
    columns: str = "id long, name string",
    *,
    key: str = "id",
    envelope: Envelope = Envelope.DEBEZIUM,
    sequence: str = "",
    on_wrong_value: OnWrongValue = OnWrongValue.DEAD_LETTER,
) -> TopicPlan:
    """A topic of changes; the columns are numbered from 1, and ``!`` makes one required."""
    declared = [each.split() for each in columns.split(", ")]
    fields = tuple(
        TopicColumn(
            name=name, type=TopicColumnType(type_.rstrip("!")), required=type_.endswith("!")
        )
        for name, type_ in declared
    )
    numbers = {each.name: number for number, each in enumerate(fields, start=1)}
    return TopicPlan(
        topic="orders",
        columns=tuple(
            SourceColumn(number=numbers[each.name], name=each.name, type=TYPES[each.type])
            for each in fields
        ),
        fields=fields,
        is_changes=True,
        key=tuple(numbers[name] for name in key.split()),
        sequence=tuple(sequence.split(".")) if sequence else (),
        envelope=envelope,
        lfs=Lfs(),
        validation=Validation.OFF,
        on_wrong_value=on_wrong_value,
        on_bad_segment=OnBadSegment.STOP,
        on_gap=OnGap.STOP,
    )


def as_json(document: Any) -> bytes | None:
    """A document as a producer writes it; bytes are as they are, None is nothing."""
    if document is None or isinstance(document, bytes):
        return document
    return json.dumps(document, separators=(",", ":")).encode()


def change_records(*records: tuple[Any, Any], first_offset: int = 0) -> pa.RecordBatch:
    """Records from pairs of key and value."""
    keys: Sequence[bytes | None] = [as_json(key) for key, _ in records]
    values = [as_json(value) for _, value in records]
    count = len(records)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(range(first_offset, first_offset + count), pa.int64()),
            pa.array([PRODUCED_MS] * count, pa.int64()),
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            pa.nulls(count, pa.binary()),
        ],
        schema=RECORD_SCHEMA,
    )
