"""Proof that bytes are one well-formed 32-bit roaring bitmap, before C code is given them.

The portable format: a cookie; with run containers a bit for each container that is one; a key and a
cardinality per container; mostly their offsets; then the containers, each an ascending array of
16-bit numbers, a set of 65,536 bits, or runs. https://github.com/RoaringBitmap/RoaringFormatSpec
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from frazil.codec.malformed import MalformedFileError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PLAIN_COOKIE = 12346
# In the lower half; the upper one is the number of containers less one.
_RUN_COOKIE = 12347
_MOST_CONTAINERS = 1 << 16
# Containers with more members are bit sets of 4,096 units.
_LARGEST_ARRAY = 4096
_BITSET_UNITS = 4096
# Bitmaps with runs leave the offsets out when they have fewer containers than this.
_FEWEST_WITH_OFFSETS = 4


@dataclass(frozen=True)
class _Header:
    cardinalities: NDArray[np.int64]
    runs: NDArray[np.bool_]
    # Relative to the bitmap's first byte; None where the format leaves them out.
    offsets: NDArray[np.int64] | None
    body: int


def check_bitmap(data: bytes, *, start: int, end: int) -> int:
    """Where the bitmap that begins at ``start`` ends, which is not after ``end``.

    Every container is inside, in order and as full as it claims; memory and time are bounded by the
    number of bytes, whatever the header says.
    """
    header = _read_header(data, start, end)
    lengths = _container_lengths(data, header, start, end)
    units = int(lengths.sum())
    until = header.body + 2 * units
    if until > end:
        raise MalformedFileError("expected the containers to fit in", offset=header.body)
    starts = np.cumsum(lengths) - lengths
    if header.offsets is not None and not np.array_equal(
        header.offsets, header.body - start + 2 * starts
    ):
        raise MalformedFileError("expected containers without gaps", offset=header.body)
    body = np.frombuffer(data, "<u2", units, header.body)
    fits = (
        _arrays_ascend(body, header, lengths, starts)
        and _bitsets_are_full(body, header, lengths)
        and _runs_ascend(body, header, starts)
    )
    if not fits:
        what = "expected containers in order and as full as they claim"
        raise MalformedFileError(what, offset=header.body)
    return until


def _read_header(data: bytes, start: int, end: int) -> _Header:
    cookie = int(_numbers(data, "<u4", 1, start, end)[0])
    at = start + 4
    with_runs = cookie & 0xFFFF == _RUN_COOKIE
    if with_runs:
        count = (cookie >> 16) + 1
        flags = _numbers(data, "u1", (count + 7) // 8, at, end).astype(np.uint8)
        runs = np.unpackbits(flags, count=count, bitorder="little").astype(np.bool_)
        at += len(flags)
    elif cookie == _PLAIN_COOKIE:
        count = int(_numbers(data, "<u4", 1, at, end)[0])
        if count > _MOST_CONTAINERS:
            raise MalformedFileError("expected at most 65,536 containers", offset=at)
        runs = np.zeros(count, np.bool_)
        at += 4
    else:
        raise MalformedFileError("expected the cookie of a roaring bitmap", offset=start)
    pairs = _numbers(data, "<u2", 2 * count, at, end)
    keys = pairs[::2]
    if not (keys[1:] > keys[:-1]).all():
        raise MalformedFileError("expected containers in ascending order", offset=at)
    at += 4 * count
    offsets = None
    if not with_runs or count >= _FEWEST_WITH_OFFSETS:
        offsets = _numbers(data, "<u4", count, at, end)
        at += 4 * count
    return _Header(pairs[1::2] + 1, runs, offsets, at)


def _numbers(data: bytes, kind: str, count: int, at: int, end: int) -> NDArray[np.int64]:
    """That many numbers, wide enough to reckon with."""
    if at + count * np.dtype(kind).itemsize > end:
        raise MalformedFileError("expected more bytes of a roaring bitmap", offset=at)
    return np.frombuffer(data, kind, count, at).astype(np.int64)


def _container_lengths(data: bytes, header: _Header, start: int, end: int) -> NDArray[np.int64]:
    """The length of every container in units of 16 bits."""
    lengths = np.where(
        header.cardinalities <= _LARGEST_ARRAY, header.cardinalities, _BITSET_UNITS
    ).astype(np.int64)
    if header.offsets is None:
        at = header.body
        # Three at most: only there does the offset of a container follow from those before it.
        for number, is_run in enumerate(header.runs):
            if is_run:
                lengths[number] = 1 + 2 * int(_numbers(data, "<u2", 1, at, end)[0])
            at += 2 * int(lengths[number])
        return lengths
    run_starts = start + header.offsets[header.runs]
    if (run_starts + 2 > end).any():
        raise MalformedFileError("expected containers inside of the bitmap", offset=header.body)
    octets = np.frombuffer(data, np.uint8)
    counts = octets[run_starts].astype(np.int64) | octets[run_starts + 1].astype(np.int64) << 8
    lengths[header.runs] = 1 + 2 * counts
    return lengths


def _arrays_ascend(
    body: NDArray[np.uint16],
    header: _Header,
    lengths: NDArray[np.int64],
    starts: NDArray[np.int64],
) -> bool:
    arrays = ~header.runs & (header.cardinalities <= _LARGEST_ARRAY)
    # The first member of a container has no neighbour before it.
    followers = np.repeat(arrays, lengths)
    followers[starts] = False
    return bool((body[1:] > body[:-1])[followers[1:]].all())


def _bitsets_are_full(
    body: NDArray[np.uint16], header: _Header, lengths: NDArray[np.int64]
) -> bool:
    bitsets = ~header.runs & (header.cardinalities > _LARGEST_ARRAY)
    bits = body[np.repeat(bitsets, lengths)].reshape(-1, _BITSET_UNITS)
    members = np.bitwise_count(bits).sum(axis=1, dtype=np.int64)
    return bool((members == header.cardinalities[bitsets]).all())


def _runs_ascend(body: NDArray[np.uint16], header: _Header, starts: NDArray[np.int64]) -> bool:
    run_starts = starts[header.runs]
    counts = body[run_starts].astype(np.int64)
    if not counts.all():
        return False
    # Each run is a first member and the number of those that follow it.
    before = np.cumsum(counts) - counts
    total = int(counts.sum())
    pairs = np.repeat(run_starts + 1 - 2 * before, counts) + 2 * np.arange(total)
    first = body[pairs].astype(np.int64)
    last = first + body[pairs + 1]
    owner = np.repeat(np.arange(len(counts)), counts)
    members = np.bincount(owner, last - first + 1, minlength=len(counts))
    # Runs that touch would have been one; the C code refuses them as well.
    apart = (first[1:] > last[:-1] + 1) | (owner[1:] != owner[:-1])
    return bool(
        (last < _MOST_CONTAINERS).all()
        and apart.all()
        and (members == header.cardinalities[header.runs]).all()
    )
