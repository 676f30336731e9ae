"""Columns that records bring themselves: Kafka Connect can write a schema into every message."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

from frazil.codec.kfs.records import decode_records
from frazil.codec.kfs.segment import parse_segment
from frazil.codec.malformed import MalformedFileError
from frazil.errors import MalformedChangeError
from frazil.sources.kafscale.changes.connect_schema import own_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from frazil.clients.object_store import Bucket
    from frazil.config.models.kafscale_source import Envelope, TopicColumn


def learn_columns(
    bucket: Bucket, keys: Iterable[str], envelope: Envelope
) -> tuple[TopicColumn, ...]:
    """The columns of the newest messages of these segments; a later one adds to those before."""
    found: dict[str, TopicColumn] = {}
    for key in keys:
        for value in _newest_values(bucket, key):
            if columns := own_columns(value, envelope):
                found |= {each.name: each for each in columns}
                break
    if not found:
        raise MalformedChangeError(
            "its columns are not declared, and its newest records carry no schema of their own.",
            next_step="declare source.topics[].columns, or let the producer write schemas",
        )
    return tuple(found.values())


def _newest_values(bucket: Bucket, key: str) -> Iterator[bytes]:
    """From the last record back; what does not decode is reported by the task that reads it."""
    try:
        batches = list(decode_records(parse_segment(bucket.read(key)).batches))
    except MalformedFileError:
        return
    for batch in reversed(batches):
        values = pc.drop_null(batch.column("value"))
        for at in range(len(values) - 1, -1, -1):
            yield values[at].as_py()
