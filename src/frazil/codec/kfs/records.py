"""The records of many batches as columns: a short loop finds where each begins, NumPy the rest.

What is decoded comes in pieces of bounded size, because a few compressed bytes may be millions of
records.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from frazil.codec.byte_slices import take_slices
from frazil.codec.kfs.compression import BatchCompression, decompress_records
from frazil.codec.malformed import MalformedFileError, refuse_where

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from frazil.codec.kfs.segment import BatchFrame

RECORD_SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        # Milliseconds since 1970.
        pa.field("timestamp_ms", pa.int64(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        # As they are stored, their number first; null when there are none.
        pa.field("headers", pa.binary()),
    ]
)

# A bomb is refused when so much has come out of it; a broker takes batches of 1 MiB by default.
MOST_BATCH_BYTES = 48 << 20
# What is decoded at once: enough that NumPy's calls cost little, and a few tens of megabytes.
_PIECE_RECORDS = 1 << 16
_PIECE_BYTES = 16 << 20
# Length, attributes, two deltas, two lengths and the number of headers.
_SHORTEST_RECORD = 7
_MORE_FOLLOWS = 0x80
_NULL_LENGTH = -1
_MOST_BITS = 64
# In the key of a record that ends a transaction: a version, and how it ended.
_CONTROL_KEY = struct.Struct(">hh")
_ABORT = 0


def decode_records(
    batches: Iterable[BatchFrame], *, most_batch_bytes: int = MOST_BATCH_BYTES
) -> Iterator[pa.RecordBatch]:
    """The records of these batches, in their order; none of transactions that were aborted."""
    piece = _Piece()
    for batch in _committed(tuple(batches), most_batch_bytes):
        data, at, ends = _open(batch, most_batch_bytes)
        done = 0
        while done < batch.record_count:
            begins = at
            most = min(batch.record_count - done, piece.has_space)
            starts, at = _find_records(data, at, ends, most, offset=batch.records_at)
            done += len(starts)
            piece.add(batch, memoryview(data)[begins:at], starts, begins=begins)
            if piece.is_full:
                yield piece.decode()
                piece = _Piece()
        if at != ends:
            what = "expected the end of the batch, found more bytes"
            raise MalformedFileError(what, offset=batch.records_at)
    if piece.count:
        yield piece.decode()


def parse_headers(block: bytes) -> tuple[tuple[bytes, bytes | None], ...]:
    """Keys and values of a record's headers, as stored; MalformedFileError if they are not."""
    try:
        count, at = _read_varint(block, 0)
        # Each has two lengths.
        if not 0 <= count <= len(block) // 2:
            raise MalformedFileError("expected headers, found a wrong number of them", offset=0)
        headers: list[tuple[bytes, bytes | None]] = []
        for _ in range(count):
            key, at = _read_bytes(block, at)
            value, at = _read_bytes(block, at)
            if key is None:
                raise MalformedFileError("expected a header with a key", offset=at)
            headers.append((key, value))
    except IndexError:
        raise MalformedFileError("expected a header, found the end", offset=len(block)) from None
    if at != len(block):
        raise MalformedFileError("expected the end of the record, found more bytes", offset=at)
    return tuple(headers)


@dataclass(slots=True)
class _Piece:
    """Records that are decoded together, with what their batches say about them."""

    data: list[memoryview] = field(default_factory=list)
    size: int = 0
    count: int = 0
    starts: list[NDArray[np.int64]] = field(default_factory=list)
    batches: list[tuple[BatchFrame, int]] = field(default_factory=list)

    @property
    def has_space(self) -> int:
        return _PIECE_RECORDS - self.count

    @property
    def is_full(self) -> bool:
        return self.count >= _PIECE_RECORDS or self.size >= _PIECE_BYTES

    def add(self, batch: BatchFrame, data: memoryview, starts: list[int], *, begins: int) -> None:
        # Offsets count in what this piece joins.
        self.starts.append(np.array(starts, np.int64) + (self.size - begins))
        self.data.append(data)
        self.batches.append((batch, len(starts)))
        self.size += len(data)
        self.count += len(starts)

    def decode(self) -> pa.RecordBatch:
        data = b"".join(self.data)
        octets = np.frombuffer(data, np.uint8)
        begins = np.concatenate(self.starts)
        ends = np.append(begins[1:], len(data))
        lengths, at = _read_varints(octets, begins, ends)
        refuse_where(at + lengths != ends, begins, "expected a record to end where the next begins")
        # Its attributes, of which none is in use.
        at = at + 1
        timestamp_deltas, at = _read_varints(octets, at, ends)
        offset_deltas, at = _read_varints(octets, at, ends)
        key_starts, key_stops, has_key = _read_lengths(octets, at, ends)
        value_starts, value_stops, has_value = _read_lengths(octets, key_stops, ends)
        most = self._of_batches(each.last_offset - each.base_offset for each, _ in self.batches)
        refuse_where(
            (offset_deltas < 0) | (offset_deltas > most), begins, "expected an offset of the batch"
        )
        offsets = self._of_batches(each.base_offset for each, _ in self.batches) + offset_deltas
        return pa.RecordBatch.from_arrays(
            [
                pa.array(offsets),
                pa.array(self._timestamps(timestamp_deltas)),
                take_slices(data, key_starts, key_stops, is_known=has_key),
                take_slices(data, value_starts, value_stops, is_known=has_value),
                _take_headers(data, octets, value_stops, ends),
            ],
            schema=RECORD_SCHEMA,
        )

    def _timestamps(self, deltas: NDArray[np.int64]) -> NDArray[np.int64]:
        stamps = self._of_batches(
            each.newest_timestamp if each.has_append_time else each.base_timestamp
            for each, _ in self.batches
        )
        counts = self._of_batches(not each.has_append_time for each, _ in self.batches)
        return stamps + deltas * counts

    def _of_batches(self, values: Iterable[int]) -> NDArray[np.int64]:
        """What batches have, for each of their records."""
        of_each = np.fromiter(values, np.int64, len(self.batches))
        return np.repeat(of_each, [count for _, count in self.batches])


def _committed(batches: tuple[BatchFrame, ...], most_batch_bytes: int) -> Iterator[BatchFrame]:
    """Batches with records, but for those of transactions that were aborted."""
    aborts: dict[int, bool] = {}
    kept: list[BatchFrame] = []
    # From the last one, because the end of a transaction comes after its records.
    for batch in reversed(batches):
        if batch.is_control:
            # One that compaction emptied had outlived the records of its transaction.
            if batch.record_count:
                aborts[batch.producer_id] = _is_abort(batch, most_batch_bytes)
        elif not batch.is_transactional:
            kept.append(batch)
        elif batch.producer_id not in aborts:
            what = "expected the end of a transaction in its segment"
            raise MalformedFileError(what, offset=batch.at)
        elif not aborts[batch.producer_id]:
            kept.append(batch)
    return reversed(kept)


def _is_abort(batch: BatchFrame, most_batch_bytes: int) -> bool:
    opened, begins, ends = _open(batch, most_batch_bytes)
    data, at = opened[begins:ends], 0
    try:
        at = _read_varint(data, at)[1] + 1
        for _ in range(2):
            at = _read_varint(data, at)[1]
        key, _ = _read_bytes(data, at)
    except IndexError:
        key = None
    if key is None or len(key) < _CONTROL_KEY.size:
        raise MalformedFileError("expected the end of a transaction", offset=batch.at)
    return bool(_CONTROL_KEY.unpack_from(key)[1] == _ABORT)


def _open(batch: BatchFrame, most_batch_bytes: int) -> tuple[bytes, int, int]:
    """The records of a batch, and from where to where they are in these bytes."""
    data, begins = batch.file, batch.records_at
    ends = begins + batch.size
    # A batch that compaction emptied has nothing to decompress.
    if batch.compression is not BatchCompression.NONE and (batch.record_count or batch.size):
        stored = memoryview(data)[begins:ends]
        data = decompress_records(
            stored, batch.compression, at_most=most_batch_bytes, offset=batch.records_at
        )
        begins, ends = 0, len(data)
    if batch.record_count * _SHORTEST_RECORD > ends - begins:
        what = f"expected {batch.record_count} records in {ends - begins} bytes"
        raise MalformedFileError(what, offset=batch.at)
    return data, begins, ends


def _find_records(
    data: bytes, at: int, ends: int, most: int, *, offset: int
) -> tuple[list[int], int]:
    """Where records begin, one after another, and where the last of them ends.

    Up to so many, and about as many bytes as a piece has. A length that is wrong leads astray,
    but not for long: what was found is compared when it is decoded.
    """
    starts: list[int] = []
    add = starts.append
    limit = min(at + _PIECE_BYTES, ends)
    try:
        # Every record passes here: nothing is called that need not be.
        for _ in range(most):
            if at >= limit:
                break
            add(at)
            byte = data[at]
            if byte < _MORE_FOLLOWS:
                at += 1 + (byte >> 1)
            else:
                second = data[at + 1]
                if second < _MORE_FOLLOWS:
                    at += 2 + (byte >> 1 & 0x3F | second << 6)
                else:
                    length, at = _read_varint(data, at)
                    at += max(length, 0)
    except IndexError:
        at = ends + 1
    if at > ends or not starts:
        raise MalformedFileError("expected a record to end in its batch", offset=offset)
    return starts, at


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A signed number, and where it ends; IndexError at the end of the data."""
    value = shift = 0
    while (byte := data[at]) >= _MORE_FOLLOWS:
        value |= (byte & 0x7F) << shift
        shift += 7
        at += 1
        if shift >= _MOST_BITS:
            raise MalformedFileError("expected a number of at most 64 bits", offset=at)
    value |= byte << shift
    return (value >> 1) ^ -(value & 1), at + 1


def _read_bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = _read_varint(data, at)
    if length == _NULL_LENGTH:
        return None, at
    if length < 0 or at + length > len(data):
        raise MalformedFileError("expected a value to end in its record", offset=at)
    return data[at : at + length], at + length


def _read_varints(
    octets: NDArray[np.uint8], at: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The signed number at each place, and where it ends."""
    what = "expected a number, found the end of the record"
    refuse_where(at >= ends, at, what)
    byte = octets[at]
    values = (byte & 0x7F).astype(np.uint64)
    at = at + 1
    # Most numbers have one byte or two.
    more = np.flatnonzero(byte >= _MORE_FOLLOWS)
    shift = 7
    while len(more):
        places = at[more]
        refuse_where(places >= ends[more], places, what)
        if shift >= _MOST_BITS:
            raise MalformedFileError("expected a number of at most 64 bits", offset=int(places[0]))
        byte = octets[places]
        values[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        at[more] += 1
        more = more[byte >= _MORE_FOLLOWS]
        shift += 7
    return (values >> np.uint64(1)).astype(np.int64) ^ -(values & np.uint64(1)).astype(np.int64), at


def _read_lengths(
    octets: NDArray[np.uint8], at: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Where keys or values start and stop, and whether there is one."""
    lengths, starts = _read_varints(octets, at, ends)
    refuse_where(lengths < _NULL_LENGTH, at, "expected a length")
    # Before the sum, which a length of 63 bits would wrap around.
    refuse_where(lengths > ends - starts, at, "expected a value to end in its record")
    return starts, starts + np.maximum(lengths, 0), lengths != _NULL_LENGTH


def _take_headers(
    data: bytes, octets: NDArray[np.uint8], at: NDArray[np.int64], ends: NDArray[np.int64]
) -> pa.BinaryArray:
    counts, stops = _read_varints(octets, at, ends)
    has_headers = counts != 0
    refuse_where(~has_headers & (stops != ends), stops, "expected the end of the record")
    headers = take_slices(data, at, ends, is_known=has_headers)
    if has_headers.any():
        # Few differ: each is checked once.
        for block in headers.unique().drop_null().to_pylist():
            parse_headers(block)
    return headers
