"""The brokers' description of their cluster, which they keep in one key of etcd."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from frazil.errors import MalformedChangeError
from frazil.sources.kafscale.segments.object_keys import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

SNAPSHOT_KEY: Final = "/kafscale/metadata/snapshot"


def parse_cluster_snapshot(document: bytes) -> frozenset[TopicPartition]:
    """The partitions that the brokers serve; those in an error state are left out.

    From release 1.6 on brokers write ``Topic`` and ``Partition``, before that ``Name`` and
    ``PartitionIndex``.
    """
    try:
        topics = json.loads(document)["Topics"]
        return frozenset(
            TopicPartition(name, number)
            for topic in topics or ()
            if not topic.get("ErrorCode") and (name := _text(topic, "Topic", "Name"))
            for number in _partitions(topic)
        )
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        message = f"the value of {SNAPSHOT_KEY} in etcd is not a description of a cluster."
        raise MalformedChangeError(
            message, next_step="set source.discovery: s3 to find topics in the bucket"
        ) from error


def _partitions(topic: dict[str, Any]) -> Iterator[int]:
    for partition in topic.get("Partitions") or ():
        if partition.get("ErrorCode"):
            continue
        number = partition.get("Partition", partition.get("PartitionIndex"))
        # True is an int too.
        if type(number) is not int or number < 0:
            raise ValueError(number)
        yield number


def _text(topic: dict[str, Any], *names: str) -> str:
    found = next((topic[name] for name in names if topic.get(name) is not None), "")
    if not isinstance(found, str):
        raise TypeError(found)
    return found
