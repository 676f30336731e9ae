"""Keys of segments: ``{namespace}/{topic}/{partition}/segment-{base offset}.kfs``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

_LAST_PARTITION = (1 << 31) - 1
_LAST_OFFSET = (1 << 63) - 1
_OFFSET_DIGITS = 20
# A broker pads the offset with zeros; its readers do not demand it. ``\d`` would take other digits.
_FILE = re.compile(r"segment-([0-9]{1,20})\.(kfs|index)", re.ASCII)
_PARTITION = re.compile(r"[0-9]{1,10}", re.ASCII)


class FileKind(StrEnum):
    """The two files of a segment."""

    SEGMENT = "kfs"
    INDEX = "index"


@dataclass(frozen=True, order=True, slots=True)
class TopicPartition:
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"

    @classmethod
    def parse(cls, text: str) -> TopicPartition:
        """What ``str`` made; a topic has no slash."""
        topic, _, partition = text.rpartition("/")
        return cls(topic, int(partition))


@dataclass(frozen=True, slots=True)
class SegmentName:
    """What the key of a segment's file says."""

    partition: TopicPartition
    base_offset: int
    kind: FileKind


def topics_prefix(namespace: str) -> str:
    """Below which topics are; empty for the entire bucket."""
    trimmed = namespace.strip("/")
    return f"{trimmed}/" if trimmed else ""


def partition_prefix(namespace: str, partition: TopicPartition) -> str:
    """Below which the segments of a partition are."""
    return f"{topics_prefix(namespace)}{partition}/"


def key_before(namespace: str, partition: TopicPartition, offset: int) -> str:
    """A key after which all segments come that begin at this offset or later."""
    # One without zeros in front comes after all others, but for that of the offset 0.
    padded = f"{offset:020d}" if offset else ""
    return f"{partition_prefix(namespace, partition)}segment-{padded}"


def keys_without_zeros(namespace: str, partition: TopicPartition) -> str:
    """A key after which all segments come that are named without zeros in front.

    Offsets have at most 19 digits, so that a broker's name begins with a zero; that of the offset 0
    without more zeros comes before all others.
    """
    return f"{partition_prefix(namespace, partition)}segment-1"


def is_padded(key: str) -> bool:
    """Whether an offset has its zeros in front, so that keys have the order of offsets."""
    matched = _FILE.fullmatch(key.rpartition("/")[2])
    return matched is not None and len(matched[1]) == _OFFSET_DIGITS


def parse_key(key: str, namespace: str) -> SegmentName | None:
    """The segment whose file has this key; None for what is not a segment's."""
    prefix = topics_prefix(namespace)
    topic, _, rest = key.removeprefix(prefix).partition("/")
    number, _, file = rest.partition("/")
    matched = _FILE.fullmatch(file)
    if not key.startswith(prefix) or not topic or matched is None:
        return None
    partition = int(number) if _PARTITION.fullmatch(number) else _LAST_PARTITION + 1
    base_offset = int(matched[1])
    if partition > _LAST_PARTITION or base_offset > _LAST_OFFSET:
        return None
    return SegmentName(TopicPartition(topic, partition), base_offset, FileKind(matched[2]))
