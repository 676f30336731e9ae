"""Runs of the key index as bytes: one Parquet blob per hash bucket, in Puffin files.

Columns are ``hi`` and ``lo`` (unsigned), ``file`` and ``pos``, and ``sequence`` and ``recorded``
where entries carry sequences; ``lo`` is left out when it is zero everywhere. Rows are sorted by
``hi`` and ``lo``. A blob's checksum is the CRC-32 of its bytes. Its footer lists the CRC-32 of
everything before the footer and of each row group, so that a part of it is trusted no less than the
entire blob: the first of them and the footer's own bytes give the checksum of the blob.
"""

from __future__ import annotations

import io
import mmap
import struct
import zlib
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from frazil.codec.key_index.entries import Entries, bucket_of
from frazil.codec.malformed import MalformedFileError
from frazil.codec.puffin import Blob, PuffinFile, write_puffin
from frazil.model.key_index import TOMBSTONE, RunBlob, RunPart
from frazil.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

BLOB_TYPE = "frazil-key-index-run-v1"
# A key that is looked up alone costs one of these: a page of each column, 140 to 270 KB in all.
ROW_GROUP_ROWS = 16_384
# In the footer of a blob: 32 bits each as hexadecimal digits, see above.
CHECKSUMS = "frazil.checksums"
# What Arrow throws at damaged bytes, and what its bindings and ours do.
DECODING_ERRORS = (pa.ArrowException, KeyError, OSError, TypeError, ValueError)

_MAGIC = b"PAR1"
# No reader holds more in one blob, and repeated rows cost a file nothing.
_MOST_ENTRIES = 1 << 27
# Names and checksums in a blob's own footer; Arrow's default is 100 MB of them.
_LONGEST_METADATA = 1 << 24
_HASH_COLUMNS = {"hi": pa.uint64(), "lo": pa.uint64()}
_POSITION_COLUMNS = {"file": pa.int32(), "pos": pa.int64()}
_TRAILER = struct.Struct("<I4s")
# What a footer takes for each row group and at all: measured, with a margin.
_FOOTER_BYTES_A_GROUP = 512
_FOOTER_BYTES = 2048


def encode_run(entries: Entries) -> bytes:
    """Sorted entries as one blob; ValueError for others."""
    if not entries.is_sorted:
        raise ValueError("a run is sorted by hash")
    table = _as_table(entries)
    sink = io.BytesIO()
    ends = []
    with pq.ParquetWriter(sink, table.schema, **_options(table.schema)) as writer:
        for start in range(0, len(entries), ROW_GROUP_ROWS):
            writer.write_table(table.slice(start, ROW_GROUP_ROWS))
            ends.append(sink.tell())
        with sink.getbuffer() as body:
            starts = [len(_MAGIC), *ends]
            groups = [zlib.crc32(body[at:end]) for at, end in pairwise(starts)]
            checksums = np.array([zlib.crc32(body), *groups], "<u4")
        writer.add_key_value_metadata({CHECKSUMS: checksums.tobytes().hex()})
    return sink.getvalue()


def _as_table(entries: Entries) -> pa.Table:
    columns = {"hi": entries.hi, "lo": entries.lo, "file": entries.file, "pos": entries.position}
    arrays = {name: pa.array(column) for name, column in columns.items() if column is not None}
    fields = [pa.field(name, array.type, nullable=False) for name, array in arrays.items()]
    if entries.sequence is not None:
        arrays |= {"sequence": entries.sequence, "recorded": pa.array(entries.recorded)}
        # A row that another process wrote may lack its sequence.
        fields.append(pa.field("sequence", entries.sequence.type))
        fields.append(pa.field("recorded", pa.int64(), nullable=False))
    return pa.Table.from_arrays(list(arrays.values()), schema=pa.schema(fields))


def _options(schema: pa.Schema) -> dict[str, object]:
    # Sorted hashes and random rows differ by little more than their entropy: 8.6 bytes of the 20.
    packed = {"hi", "pos"}
    if "sequence" in schema.names and not _is_text_like(schema.field("sequence").type):
        packed.add("sequence")
    return {
        # Hashes and rows are noise, which zstd only copies.
        "compression": {
            name: "none" if name in {"hi", "lo", "pos"} else "zstd" for name in schema.names
        },
        "use_dictionary": [name for name in ("file", "recorded") if name in schema.names],
        "column_encoding": dict.fromkeys(sorted(packed), "DELTA_BINARY_PACKED"),
        "write_statistics": ["hi"],
        "write_page_checksum": True,
        # Arrow's own copy of the schema says nothing that Parquet's does not.
        "store_schema": False,
    }


def _is_text_like(kind: pa.DataType) -> bool:
    return not (pa.types.is_integer(kind) or pa.types.is_timestamp(kind))


def decode_run(
    data: bytes | memoryview | pa.Buffer,
    *,
    entries: int | None = None,
    checksum: int | None = None,
    bits: int = 0,
    bucket: int = 0,
) -> Entries:
    """The entries of an entire blob, which must be as many, and lie in that bucket.

    Number and checksum must be given where they are known: without them the pages are checked,
    but not what the blob says of them. Raises MalformedFileError.
    """
    if checksum is not None and zlib.crc32(data) != checksum:
        raise MalformedFileError("expected another CRC-32: the run is damaged", offset=0)
    try:
        file = open_run(data, verified=checksum is not None)
        check_count(file.metadata, entries)
        found = read_entries(file, range(file.metadata.num_row_groups))
    except DECODING_ERRORS as error:
        raise MalformedFileError("expected a run, found a damaged one", offset=0) from error
    check_entries(found, bits=bits, bucket=bucket)
    return found


def open_run(data: bytes | memoryview | pa.Buffer, *, verified: bool) -> pq.ParquetFile:
    """A blob, or the verified parts of one at their offsets."""
    return pq.ParquetFile(
        pa.BufferReader(data),
        page_checksum_verification=not verified,
        thrift_string_size_limit=_LONGEST_METADATA,
        thrift_container_size_limit=_LONGEST_METADATA,
    )


def check_count(metadata: pq.FileMetaData, entries: int | None) -> None:
    """Refuse a blob that has more or fewer entries than it should."""
    rows = metadata.num_rows
    # Who wrote the blob may have written the manifest that counts it, too.
    most = _MOST_ENTRIES if entries is None else min(entries, _MOST_ENTRIES)
    if not 0 <= rows <= most or rows != (rows if entries is None else entries):
        what = f"expected {most} entries, found {rows}"
        raise MalformedFileError(what, offset=0)


def read_entries(file: pq.ParquetFile, groups: range | list[int]) -> Entries:
    """The entries of these row groups; nothing is known yet of their order."""
    rows = sum(file.metadata.row_group(group).num_rows for group in groups)
    # Those who decode many blobs do so in threads of their own.
    table = file.read_row_groups(list(groups), use_threads=False)
    types = dict(zip(table.schema.names, table.schema.types, strict=True))
    kind = types.get("sequence")
    expected = {
        **{name: type_ for name, type_ in _HASH_COLUMNS.items() if name == "hi" or name in types},
        **_POSITION_COLUMNS,
        **({} if kind is None else {"sequence": kind, "recorded": pa.int64()}),
    }
    nulls = sum(table.column(name).null_count for name in types if name != "sequence")
    if types != expected or nulls or table.num_rows != rows:
        raise MalformedFileError("expected the columns of a run, all of them filled", offset=0)
    return Entries(
        table.column("hi").to_numpy(),
        table.column("lo").to_numpy() if "lo" in types else None,
        table.column("file").to_numpy(),
        table.column("pos").to_numpy(),
        None if kind is None else table.column("sequence").combine_chunks(),
        None if kind is None else table.column("recorded").to_numpy(),
    )


def check_entries(entries: Entries, *, bits: int, bucket: int) -> None:
    """Refuse entries that no run of that bucket can have."""
    if not entries.is_sorted:
        raise MalformedFileError("expected entries sorted by hash", offset=0)
    check_bucket(entries.hi, bits=bits, bucket=bucket)
    can_be = (entries.file >= 0) & (entries.position >= 0)
    if entries.sequence is not None:
        # A tombstone lies nowhere.
        can_be |= entries.file == TOMBSTONE
    if not bool(can_be.all()):
        raise MalformedFileError("expected files and rows that can be", offset=0)


def check_bucket(hi: NDArray[np.uint64], *, bits: int, bucket: int) -> None:
    """Refuse sorted hashes that are not all of that bucket."""
    if len(hi) and not bucket_of(int(hi[0]), bits) == bucket == bucket_of(int(hi[-1]), bits):
        what = f"expected entries of bucket {bucket} of {1 << bits}, found others"
        raise MalformedFileError(what, offset=0)


def write_run_part(buckets: Mapping[int, Entries], *, bits: int | None = None) -> PuffinFile:
    """A Puffin file with a blob for each bucket that has entries, in the mapping's order.

    Raises ValueError for entries that are not sorted or, where ``bits`` are given, not of their
    bucket.
    """
    blobs = [_blob(bucket, found, bits) for bucket, found in buckets.items() if len(found)]
    return write_puffin(blobs, {"created-by": f"frazil {__version__}"})


def _blob(bucket: int, entries: Entries, bits: int | None) -> Blob:
    data = encode_run(entries)
    if bits is not None and [each for each, _ in entries.bucket_slices(bits)] != [bucket]:
        raise ValueError("the entries of a bucket lie in that bucket")
    properties = {
        "bucket": str(bucket),
        "entries": str(len(entries)),
        "crc32": str(zlib.crc32(data)),
    }
    return Blob(BLOB_TYPE, data, properties=properties)


def run_part(location: str, file: PuffinFile) -> RunPart:
    """What a manifest says of a file made above that was put there."""
    blobs = tuple(
        RunBlob(
            bucket=int(blob.properties["bucket"]),
            offset=blob.offset,
            length=blob.length,
            entries=int(blob.properties["entries"]),
            checksum=int(blob.properties["crc32"]),
        )
        for blob in file.blobs
    )
    return RunPart(location, len(file.data), blobs)


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
