"""The keys in etcd that workers share, and their values, as KafScale's own processor writes them.

Its workers and ours claim partitions by the same keys. ``workers`` is ours alone: by it our workers
know each other, and the processor does not read it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.errors import ConfigError, MalformedChangeError
from frazil.sources.kafscale.segments.object_keys import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

# The processor's value for a partition of which nothing was processed yet.
NOTHING_PROCESSED = -1


@dataclass(frozen=True, slots=True)
class CoordinationKeys:
    """The keys below one prefix, ``source.offsets.key_prefix``."""

    prefix: str

    @property
    def leases(self) -> str:
        """Prefix of the claims on partitions."""
        return f"{self.prefix}/leases/"

    @property
    def workers(self) -> str:
        """Prefix of the workers that share partitions."""
        return f"{self.prefix}/workers/"

    def lease(self, partition: TopicPartition) -> str:
        """The claim on a partition: whoever has it alone may work on it."""
        return f"{self.leases}{partition}"

    def worker(self, owner: str) -> str:
        """A worker of ours."""
        return f"{self.workers}{owner}"

    def offset(self, partition: TopicPartition) -> str:
        """The last offset of a partition that was processed."""
        return f"{self.prefix}/offsets/{partition}"

    def watermarks(self, topic: str) -> str:
        """Prefix of the watermarks of a topic's partitions."""
        return f"{self.prefix}/watermarks/{topic}/"

    def watermark(self, partition: TopicPartition) -> str:
        """A copy of the partition's offset."""
        return f"{self.prefix}/watermarks/{partition}"

    def topic_watermark(self, topic: str) -> str:
        """A copy of the smallest watermark of the topic's partitions."""
        return f"{self.prefix}/watermarks/{topic}"

    def claimed_partition(self, key: str) -> TopicPartition | None:
        """The partition of a claim; None for a key that is none."""
        try:
            return TopicPartition.parse(key.removeprefix(self.leases))
        except ValueError:
            return None


def lease_value(owner: str, *, expires_at_ms: int) -> bytes:
    """Of a claim; the processor never counts generations."""
    return _compact({"owner_id": owner, "lease_expires_at": expires_at_ms, "generation": 1})


def offset_value(offset: int, *, now_ms: int) -> bytes:
    """Of an offset or a watermark; to the processor too, both times are those of the writing."""
    return _compact({"offset": offset, "last_timestamp_ms": now_ms, "updated_at": now_ms})


def parse_offset(key: str, value: bytes) -> int:
    """Of an offset or a watermark."""
    try:
        offset = json.loads(value)["offset"]
    except (LookupError, TypeError, ValueError) as error:
        raise _malformed(key) from error
    if type(offset) is not int:
        raise _malformed(key)
    return offset


def worker_value(topics: Collection[str], pipeline: str = "") -> bytes:
    """Of a worker: the topics it works on, and for whom."""
    return _compact({"topics": sorted(topics), "pipeline": pipeline})


def worker_topics(value: bytes) -> frozenset[str]:
    """The topics of a worker; none when it is not known what the value means."""
    try:
        return frozenset(str(topic) for topic in json.loads(value)["topics"])
    except (LookupError, TypeError, ValueError):
        return frozenset()


def refuse_other_pipelines(
    workers: Iterable[bytes], topics: Collection[str], pipeline: str, *, prefix: str
) -> None:
    """Raise ConfigError when workers of another pipeline have some of our topics.

    They would share the partitions, and each of the two pipelines would have some of the records.
    One that does not say whose it is, is ours: an earlier release did not.
    """
    for value in workers:
        other, shared = _worker_pipeline(value), worker_topics(value) & set(topics)
        if shared and pipeline and other not in ("", pipeline):
            message = (
                f"workers of the pipeline {other} share the partitions of "
                f"{', '.join(sorted(shared))} by the same keys in etcd, below {prefix}/."
            )
            next_step = "give each pipeline a source.offsets.key_prefix of its own"
            raise ConfigError(message, next_step=next_step)


def _worker_pipeline(value: bytes) -> str:
    try:
        return str(json.loads(value).get("pipeline", ""))
    except (AttributeError, ValueError):
        return ""


def _malformed(key: str) -> MalformedChangeError:
    message = f"the value of {key} in etcd is not an offset as KafScale's processor writes it."
    return MalformedChangeError(message, next_step="delete that key, the table's marker decides")


def _compact(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
