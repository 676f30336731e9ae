"""Records that only point to their payload: which those are, and the payloads from the store.

A payload that cannot be had, or is not what its record says, makes a dead letter of the record.
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass, replace
from time import monotonic_ns
from typing import TYPE_CHECKING, Annotated

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.config.models.kafscale_source import RESOLVE_CONCURRENCY, LfsMode
from frazil.errors import StorageError
from frazil.model.records.rejected_record import RejectReason
from frazil.sources.kafscale.reading.rejected_rows import (
    STORED_VALUE,
    RejectedRow,
    reject_rows,
    rows_but,
)
from frazil.sources.protocol import CountedOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from frazil.clients.object_store import Bucket
    from frazil.config.models.kafscale_source import Lfs
    from frazil.model.records.rejected_record import RejectedRecord

# What KafScale's own readers take for an envelope.
_SHORTEST_ENVELOPE = 15
_MARK, _MARK_WITHIN = b'"kfs_lfs"', 50
# Columns hold payloads in memory; more than this is what object stores are for.
MOST_BLOB_BYTES = 64 << 20
# About how many bytes of payloads are given on at once.
_PART_BYTES = 32 << 20
# What S3 allows.
_LONGEST_KEY = 1024
_LARGEST_SIZE = (1 << 63) - 1
_FIRST_PRINTABLE, _DELETE = " ", "\x7f"
_SHA256, _NO_CHECKSUM = "sha256", "none"


def _crc32(blob: bytes) -> str:
    return f"{zlib.crc32(blob):08x}"


_CHECKSUMS: Mapping[str, Callable[[bytes], str]] = {
    _SHA256: lambda blob: hashlib.sha256(blob).hexdigest(),
    "md5": lambda blob: hashlib.md5(blob, usedforsecurity=False).hexdigest(),
    "crc32": _crc32,
}


class LfsEnvelope(msgspec.Struct, frozen=True, gc=False):
    """What a record says about its payload."""

    kfs_lfs: int
    key: str
    bucket: str | None = None
    size: Annotated[int, msgspec.Meta(ge=0, le=_LARGEST_SIZE)] | None = None
    sha256: str | None = None
    checksum: str | None = None
    checksum_alg: str | None = None
    content_type: str | None = None

    @property
    def algorithm(self) -> str:
        """Of its checksum."""
        named = (self.checksum_alg or _SHA256).lower()
        # Every envelope has this one as well.
        return named if self.checksum or named == _NO_CHECKSUM else _SHA256

    @property
    def expected(self) -> str | None:
        """Its checksum in hexadecimal digits; None for a payload that has none."""
        if self.algorithm == _NO_CHECKSUM:
            return None
        return self.checksum or self.sha256 or None


_METADATA: Sequence[tuple[str, pa.DataType, Callable[[LfsEnvelope], object]]] = (
    ("lfs_content_type", pa.string(), lambda each: each.content_type),
    ("lfs_blob_size", pa.int64(), lambda each: each.size),
    ("lfs_checksum", pa.string(), lambda each: each.expected),
    ("lfs_checksum_alg", pa.string(), lambda each: each.algorithm),
    ("lfs_bucket", pa.string(), lambda each: each.bucket),
    ("lfs_key", pa.string(), lambda each: each.key),
)


@dataclass(frozen=True, eq=False, slots=True)
class ResolvedRecords:
    """Some of the records that were given, in their order, and what became of the others.

    With payloads among them they have the values of the topic in ``STORED_VALUE``, and with
    ``store_metadata`` the fields of envelopes in columns of the table's names.
    """

    records: pa.RecordBatch
    rejected: tuple[RejectedRecord, ...]
    counts: Mapping[CountedOutcome, int]


class EnvelopeResolver:
    """Applies the settings of one topic to the records of one partition."""

    def __init__(self, settings: Lfs, bucket: Bucket, *, topic: str, partition: int) -> None:
        self._settings = settings
        self._bucket = bucket
        self._topic = topic
        self._partition = partition
        self._decode = msgspec.json.Decoder(LfsEnvelope).decode

    def resolve(self, records: pa.RecordBatch) -> Iterator[ResolvedRecords]:
        """All records, in parts that fit into memory.

        Raises StorageError when the store does not answer, which says nothing about a record.
        """
        if self._settings.mode is LfsMode.OFF:
            yield ResolvedRecords(records, (), {})
            return
        found, faults = self._open(records.column("value"))
        wanted = {row: each for row, each in found.items() if self._is_inlined(each)}
        problems = {row: self._problem_before(each) for row, each in wanted.items()}
        faults |= {row: problem for row, problem in problems.items() if problem is not None}
        begins, size, waited, blobs = 0, 0, 0, dict[int, bytes]()
        fetched = self._fetch({row: wanted[row] for row in wanted if row not in faults})
        for row, blob, nanoseconds in fetched:
            waited += nanoseconds
            if isinstance(blob, str):
                faults[row] = blob
                continue
            blobs[row] = blob
            size += len(blob)
            if size >= _PART_BYTES:
                part = self._part(records, range(begins, row + 1), found, faults, blobs)
                yield _timed(part, waited)
                begins, size, waited, blobs = row + 1, 0, 0, {}
        part = self._part(records, range(begins, records.num_rows), found, faults, blobs)
        yield _timed(part, waited)

    def _open(self, values: pa.BinaryArray) -> tuple[dict[int, LfsEnvelope], dict[int, str]]:
        """The envelopes by row, and what looks like one and is not."""
        rows = envelope_rows(values)
        found: dict[int, LfsEnvelope] = {}
        faults: dict[int, str] = {}
        for row, value in zip(rows.to_pylist(), values.take(rows).to_pylist(), strict=True):
            try:
                found[row] = self._decode(value)
            except (ValueError, RecursionError):
                if self._settings.mode is not LfsMode.REFERENCE:
                    faults[row] = "its envelope cannot be read"
        return found, faults

    def _fetch(self, wanted: Mapping[int, LfsEnvelope]) -> Iterator[tuple[int, bytes | str, int]]:
        """Payloads by row, in the order of rows, or what is wrong with one; and nanoseconds.

        Several are on their way at once: what counts is how long one is waited for.
        """
        if not wanted:
            return
        blobs = self._bucket.read_each(
            [each.key for each in wanted.values()],
            connections=self._settings.resolve_concurrency or RESOLVE_CONCURRENCY,
            at_most=MOST_BLOB_BYTES,
        )
        for row, envelope in wanted.items():
            began = monotonic_ns()
            _, blob = next(blobs)
            found = self._checked(envelope, blob)
            yield row, found, monotonic_ns() - began

    def _checked(self, envelope: LfsEnvelope, blob: bytes | StorageError) -> bytes | str:
        if not isinstance(blob, StorageError):
            return self._problem_of(envelope, blob) or blob
        if blob.is_gone:
            return "its payload is not in the bucket"
        if blob.is_too_large:
            return f"its payload has more than {MOST_BLOB_BYTES} bytes"
        raise blob

    def _is_inlined(self, envelope: LfsEnvelope) -> bool:
        if self._settings.mode is LfsMode.HYBRID:
            return 0 < (envelope.size or 0) <= self._settings.max_inline_size
        return self._settings.mode is LfsMode.RESOLVE

    def _problem_before(self, envelope: LfsEnvelope) -> str | None:
        if not _is_readable(envelope.key):
            return "its envelope has a key that cannot be read"
        if (envelope.size or 0) > MOST_BLOB_BYTES:
            return f"its payload has more than {MOST_BLOB_BYTES} bytes"
        if not self._settings.validate_checksum or envelope.algorithm == _NO_CHECKSUM:
            return None
        if envelope.algorithm not in _CHECKSUMS:
            return "its envelope has a checksum of an unknown kind"
        return None

    def _problem_of(self, envelope: LfsEnvelope, blob: bytes) -> str | None:
        if not self._settings.validate_checksum:
            return None
        if envelope.size is not None and envelope.size != len(blob):
            return f"its payload has {len(blob)} bytes instead of {envelope.size}"
        expected = envelope.expected
        if expected is not None and _CHECKSUMS[envelope.algorithm](blob) != expected.lower():
            return "its payload has another checksum"
        return None

    def _part(
        self,
        records: pa.RecordBatch,
        rows: range,
        found: Mapping[int, LfsEnvelope],
        faults: Mapping[int, str],
        blobs: Mapping[int, bytes],
    ) -> ResolvedRecords:
        part = records.slice(rows.start, len(rows))
        # Rows are counted within the part from here on.
        envelopes = {row - rows.start: each for row, each in found.items() if row in rows}
        wrong = {
            row - rows.start: RejectedRow(RejectReason.BLOB, why)
            for row, why in faults.items()
            if row in rows
        }
        rejected = reject_rows(part, wrong, topic=self._topic, partition=self._partition)
        counts: dict[CountedOutcome, int] = {}
        left_out = set(wrong)
        if self._settings.mode is LfsMode.SKIP and envelopes:
            counts[CountedOutcome.SKIPPED] = len(envelopes)
            left_out |= envelopes.keys()
        if blobs:
            counts[CountedOutcome.RESOLVED] = len(blobs)
            counts[CountedOutcome.RESOLVED_BYTES] = sum(map(len, blobs.values()))
            part = _with_payloads(part, {row - rows.start: blob for row, blob in blobs.items()})
        if self._settings.store_metadata and envelopes:
            part = _with_metadata(part, envelopes)
        if left_out:
            part = part.filter(rows_but(part.num_rows, left_out))
        return ResolvedRecords(part, rejected, counts)


def _timed(part: ResolvedRecords, nanoseconds: int) -> ResolvedRecords:
    """With the time that its payloads took; the time of those that were not to be had is lost."""
    if CountedOutcome.RESOLVED not in part.counts:
        return part
    took = {CountedOutcome.RESOLVED_MICROSECONDS: nanoseconds // 1000}
    return replace(part, counts={**part.counts, **took})


def envelope_rows(values: pa.BinaryArray) -> pa.UInt64Array:
    """The rows whose values look like envelopes."""
    begins = pc.and_(
        pc.starts_with(values, b"{"),
        pc.greater_equal(pc.binary_length(values), _SHORTEST_ENVELOPE),
    )
    candidates = pc.indices_nonzero(begins)
    heads = pc.binary_slice(values.take(candidates), 0, _MARK_WITHIN)
    return candidates.filter(pc.match_substring(heads, _MARK))


def _is_readable(key: str) -> bool:
    """Whether the store's client can ask for this key, and for no other in its place."""
    try:
        length = len(key.encode())
    except UnicodeEncodeError:
        return False
    parts = key.split("/")
    return length <= _LONGEST_KEY and not any(
        part in ("", ".", "..") or any(char < _FIRST_PRINTABLE or char == _DELETE for char in part)
        for part in parts
    )


def _with_payloads(records: pa.RecordBatch, blobs: Mapping[int, bytes]) -> pa.RecordBatch:
    at = records.schema.get_field_index("value")
    stored = records.column(at)
    replaced = np.zeros(records.num_rows, np.bool_)
    replaced[list(blobs)] = True
    payloads = pa.array(list(blobs.values()), pa.binary())
    values = pc.replace_with_mask(stored, pa.array(replaced), payloads)
    field = records.schema.field(at)
    return records.set_column(at, field, values).append_column(STORED_VALUE, stored)


def _with_metadata(records: pa.RecordBatch, envelopes: Mapping[int, LfsEnvelope]) -> pa.RecordBatch:
    places = np.zeros(records.num_rows, np.int32)
    unknown = np.ones(records.num_rows, np.bool_)
    places[list(envelopes)] = range(len(envelopes))
    unknown[list(envelopes)] = False
    of_rows = pa.array(places, mask=unknown)
    for name, type_, of_envelope in _METADATA:
        values = pa.array(map(of_envelope, envelopes.values()), type_)
        records = records.append_column(name, values.take(of_rows))
    return records
