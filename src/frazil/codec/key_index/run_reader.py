"""A few keys of a run without the rest of it: the footer first, then the row groups it allows."""

from __future__ import annotations

import mmap
import struct
import zlib
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from frazil.codec.key_index.run import (
    CHECKSUMS,
    DECODING_ERRORS,
    ROW_GROUP_ROWS,
    check_bucket,
    check_count,
    check_entries,
    open_run,
    read_entries,
)
from frazil.codec.malformed import MalformedFileError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from frazil.codec.key_index.entries import Entries
    from frazil.model.key_index import RunBlob

_TRAILER = struct.Struct("<I4s")
_MAGIC = b"PAR1"
# What a footer takes for each row group and at all: measured, with a margin.
_FOOTER_BYTES_A_GROUP = 512
_FOOTER_BYTES = 2048


@dataclass(frozen=True)
class _Footer:
    """A verified footer: where each row group starts and what its bytes must add up to."""

    data: bytes
    # The lowest and the highest hash of each row group.
    bounds: NDArray[np.uint64]
    # One more than there are row groups: the last one ends where the footer starts.
    starts: list[int]
    checksums: list[int]


class RunBlobReader:
    """Reads the row groups that may hold given keys; ``read`` takes offset and length in the blob.

    What is read is verified against the blob's checksum as strictly as the entire blob would be.
    Fewer bytes than requested are a blob that was cut off.
    """

    def __init__(
        self, read: Callable[[int, int], bytes | memoryview], blob: RunBlob, *, bits: int = 0
    ) -> None:
        self._read = read
        self._blob = blob
        self._bits = bits

    def load(self, hi: NDArray[np.uint64]) -> Entries:
        """The entries of every row group in which one of these sorted hashes may be.

        Raises MalformedFileError.
        """
        footer = self._load_footer()
        # Of all row groups: those that are not read must be of this bucket too.
        check_bucket(footer.bounds.ravel(), bits=self._bits, bucket=self._blob.bucket)
        groups = _groups_with(footer.bounds, hi)
        # As long as the blob, but made of no more than the parts that are filled in.
        with_holes = mmap.mmap(-1, self._blob.length)
        with_holes[footer.starts[-1] :] = footer.data
        for first, end in _neighbours(groups):
            with_holes[footer.starts[first] : footer.starts[end]] = self._load_groups(
                footer, first, end
            )
        try:
            file = open_run(pa.py_buffer(with_holes), verified=True)
            found = read_entries(file, groups)
        except DECODING_ERRORS as error:
            raise MalformedFileError("expected entries of a run", offset=0) from error
        check_entries(found, bits=self._bits, bucket=self._blob.bucket)
        return found

    def _load_footer(self) -> _Footer:
        groups = -(-self._blob.entries // ROW_GROUP_ROWS)
        tail = self._load_tail(_FOOTER_BYTES + groups * _FOOTER_BYTES_A_GROUP)
        length, magic = _TRAILER.unpack(tail[-_TRAILER.size :])
        size = length + _TRAILER.size
        if magic != _MAGIC or size > self._blob.length - len(_MAGIC):
            what = "expected the footer of a run"
            raise MalformedFileError(what, offset=self._blob.length - _TRAILER.size)
        data = bytes(tail[-size:] if size <= len(tail) else self._load_tail(size))
        start = self._blob.length - size
        try:
            return self._verified(data, start)
        except DECODING_ERRORS as error:
            raise MalformedFileError("expected the footer of a run", offset=start) from error

    def _verified(self, data: bytes, start: int) -> _Footer:
        metadata = open_run(data, verified=True).metadata
        check_count(metadata, self._blob.entries)
        digits = metadata.metadata[CHECKSUMS.encode()].decode()
        body, *checksums = np.frombuffer(bytes.fromhex(digits), "<u4").tolist()
        # Going on from the sum of what was before gives the sum of all.
        if zlib.crc32(data, body) != self._blob.checksum:
            what = "expected another CRC-32: the footer of the run is damaged"
            raise MalformedFileError(what, offset=start)
        groups = range(metadata.num_row_groups)
        columns = [metadata.row_group(group).column(0) for group in groups]
        bounds = [(column.statistics.min, column.statistics.max) for column in columns]
        starts = [column.data_page_offset for column in columns]
        shaped = np.array(bounds, np.uint64).reshape(-1, 2)
        return _Footer(data, shaped, [*starts, start], checksums)

    def _load_groups(self, footer: _Footer, first: int, end: int) -> bytes | memoryview:
        """The bytes of neighbouring row groups, each verified."""
        starts = footer.starts[first : end + 1]
        data = self._load_range(starts[0], starts[-1] - starts[0])
        checksums = footer.checksums[first:end]
        for (at, until), checksum in zip(pairwise(starts), checksums, strict=True):
            if zlib.crc32(data[at - starts[0] : until - starts[0]]) != checksum:
                what = "expected another CRC-32: a row group of the run is damaged"
                raise MalformedFileError(what, offset=at)
        return data

    def _load_tail(self, length: int) -> bytes | memoryview:
        length = min(length, self._blob.length)
        return self._load_range(self._blob.length - length, length)

    def _load_range(self, offset: int, length: int) -> bytes | memoryview:
        data = self._read(offset, length)
        if len(data) != length or length < _TRAILER.size:
            what = f"expected {length} bytes of a run, found {len(data)}"
            raise MalformedFileError(what, offset=offset)
        return data


def _groups_with(bounds: NDArray[np.uint64], hi: NDArray[np.uint64]) -> list[int]:
    """The row groups whose bounds do not rule out every hash."""
    least = np.searchsorted(hi, bounds[:, 0])
    most = np.searchsorted(hi, bounds[:, 1], side="right")
    touched: list[int] = np.flatnonzero(least < most).tolist()
    return touched


def _neighbours(groups: list[int]) -> list[tuple[int, int]]:
    """First and end of each stretch of successive numbers, which are read at once."""
    firsts = [group for group in groups if group - 1 not in groups]
    ends = [group + 1 for group in groups if group + 1 not in groups]
    return list(zip(firsts, ends, strict=True))
