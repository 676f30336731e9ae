"""Topics in an object store, with records made by vectors: an encoder of messages takes minutes."""

from __future__ import annotations

import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import obstore
import pyarrow as pa
from obstore.store import S3Store

from frazil.clients.object_store import Bucket
from frazil.codec.kfs.compression import BatchCompression
from frazil.codec.kfs.segment import parse_segment
from frazil.demo.services import seaweedfs
from tests.support.kafscale.segments import index_of, raw_batch, segment, varint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from frazil.demo.services import ObjectStore

VALUE_BYTES = 200
NAMESPACE = "bench"
_SEED = 20_260_101
# What values are made of: a compressor makes them about a quarter smaller.
_LETTERS = np.frombuffer(
    b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/", np.uint8
)
_DIGITS = 10
# Uploads at a time.
_CONNECTIONS = 16
_BASE_OFFSET = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicShape:
    """How the records of a topic are divided; each partition has as many segments."""

    name: str
    partitions: int
    segments: int
    batches: int
    records: int
    compression: BatchCompression = BatchCompression.NONE

    @property
    def rows(self) -> int:
        """Records of all segments."""
        return self.segments * self.batches * self.records

    @property
    def rows_a_partition(self) -> int:
        """Records of the segments of one partition."""
        return self.rows // self.partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTopic:
    """A topic in the bucket; ``checksums`` is the sum of the CRC-32 of all values."""

    shape: TopicShape
    keys: tuple[str, ...]
    size: int
    checksums: int


@dataclass(frozen=True, kw_only=True)
class TopicBucket(Bucket):
    """A bucket that brokers write to; made to travel to other processes."""

    def fill(self, shape: TopicShape) -> StoredTopic:
        """Write a topic as its brokers would."""
        values, store = _Values(), self._opened()

        def put(made: tuple[int, int, bytes]) -> tuple[str, int]:
            partition, base, data = made
            return _put(store, f"{shape.name}/{partition}", base, data), len(data)

        with ThreadPoolExecutor(_CONNECTIONS) as threads:
            made = list(threads.map(put, _segments(shape, values)))
        return StoredTopic(
            shape=shape,
            keys=tuple(key for key, _ in made),
            size=sum(size for _, size in made),
            checksums=values.checksums,
        )

    def repeat(self, topic: StoredTopic, times: int) -> tuple[str, ...]:
        """The records of a topic once more, behind what was repeated before; the new keys."""
        store, by = self._opened(), times * topic.shape.rows_a_partition

        def put(key: str) -> str:
            base, data = _moved(self.read(key), by)
            partition = key.removeprefix(f"{NAMESPACE}/").rpartition("/")[0]
            return _put(store, partition, base, data)

        with ThreadPoolExecutor(_CONNECTIONS) as threads:
            return tuple(threads.map(put, topic.keys))

    def _opened(self) -> S3Store:
        return S3Store(
            self.name,
            config={
                "endpoint": self.endpoint or "",
                "region": self.region,
                "access_key_id": self.access_key_id or "",
                "secret_access_key": self.secret_access_key or "",
            },
            client_options={"allow_http": True},
        )


@contextmanager
def open_topic_bucket() -> Iterator[tuple[ObjectStore, TopicBucket]]:
    """An empty bucket of a store of its own."""
    with seaweedfs() as service:
        yield (
            service,
            TopicBucket(
                name=service.bucket,
                region=service.region,
                endpoint=service.endpoint,
                path_style=True,
                access_key_id=service.access_key,
                secret_access_key=service.secret_key,
            ),
        )


def _put(store: S3Store, partition: str, base: int, data: bytes) -> str:
    """The two files of a segment; the key of the first."""
    name = f"{NAMESPACE}/{partition}/segment-{base:020d}"
    obstore.put(store, f"{name}.index", index_of(base))
    obstore.put(store, f"{name}.kfs", data)
    return f"{name}.kfs"


def _moved(data: bytes, by: int) -> tuple[int, bytes]:
    """The segment that its records would be, so many offsets later."""
    found = parse_segment(data)
    batches = []
    for each in found.batches:
        # The checksum of a batch is of what comes after its base offset.
        rest = data[each.at + _BASE_OFFSET : each.records_at + each.size]
        batches.append((each.base_offset + by).to_bytes(_BASE_OFFSET) + rest)
    base = found.base_offset + by
    return base, segment(batches, base=base)


class _Values:
    """Values of one length, no two alike."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(_SEED)
        self._made = 0
        self.checksums = 0

    def make(self, count: int) -> NDArray[np.uint8]:
        """The next ones, each with its number in front."""
        values: NDArray[np.uint8] = _LETTERS[
            self._random.integers(0, len(_LETTERS), (count, VALUE_BYTES), np.uint8)
        ]
        numbers = "".join(f"{self._made + at:0{_DIGITS}d}" for at in range(count))
        values[:, :_DIGITS] = np.frombuffer(numbers.encode(), np.uint8).reshape(count, _DIGITS)
        self._made += count
        self.checksums += sum(map(zlib.crc32, values))
        return values


def _segments(shape: TopicShape, values: _Values) -> Iterator[tuple[int, int, bytes]]:
    """Partition, base offset and bytes of each segment."""
    heads = _heads(shape.records)
    for partition in range(shape.partitions):
        offset = 0
        for _ in range(shape.segments // shape.partitions):
            base, batches = offset, []
            for _ in range(shape.batches):
                records = _records(values.make(shape.records), heads)
                batches.append(
                    raw_batch(
                        _compress(records, shape.compression),
                        count=shape.records,
                        base=offset,
                        attributes=int(shape.compression),
                    )
                )
                offset += shape.records
            yield partition, base, segment(batches, base=base)


def _heads(count: int) -> list[NDArray[np.uint8]]:
    """What comes before values, for stretches of records in which it has one length."""
    stretches: dict[int, list[bytes]] = {}
    for delta in range(count):
        # Attributes, timestamp delta, offset delta, no key, the length of the value.
        body = b"\0\0" + varint(delta) + varint(-1) + varint(VALUE_BYTES)
        head = varint(len(body) + VALUE_BYTES + 1) + body
        stretches.setdefault(len(head), []).append(head)
    return [
        np.frombuffer(b"".join(found), np.uint8).reshape(len(found), length)
        for length, found in stretches.items()
    ]


def _records(values: NDArray[np.uint8], heads: Sequence[NDArray[np.uint8]]) -> bytes:
    parts, at = [], 0
    for stretch in heads:
        count, length = stretch.shape
        # The last byte is the number of headers.
        rows = np.zeros((count, length + VALUE_BYTES + 1), np.uint8)
        rows[:, :length] = stretch
        rows[:, length:-1] = values[at : at + count]
        parts.append(rows.tobytes())
        at += count
    return b"".join(parts)


def _compress(records: bytes, compression: BatchCompression) -> bytes:
    match compression:
        case BatchCompression.NONE:
            return records
        case BatchCompression.GZIP:
            return zlib.compress(records, 1, zlib.MAX_WBITS | 16)
        case _:
            codec = pa.Codec(compression.name.lower())
            return bytes(codec.compress(records, asbytes=True))
