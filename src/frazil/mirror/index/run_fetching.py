"""Fetches complete buckets of a run from the store and checks them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.codec.key_index.entries import bucket_bounds
from frazil.codec.key_index.run import decode_run
from frazil.mirror.file_damage import reporting_damage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.clients.iceberg.file_system import InputFiles
    from frazil.codec.key_index.entries import Entries
    from frazil.model.key_index import IndexRun, RunBlob, RunPart


def fetch_bucket(run: IndexRun, number: int, bits: int, inputs: InputFiles) -> Iterator[Entries]:
    """The run's entries of a bucket; the run may be split finer or coarser.

    Raises DamagedIndexError for a file that is missing or not what the manifest says.
    """
    shared = min(bits, run.bits)
    for part in run.parts:
        for blob in part.blobs:
            if blob.bucket >> (run.bits - shared) == number >> (bits - shared):
                entries = fetch_blob(run, part, blob, inputs)
                yield of_bucket(entries, number, bits) if bits > run.bits else entries


def fetch_blob(run: IndexRun, part: RunPart, blob: RunBlob, inputs: InputFiles) -> Entries:
    """All entries of one blob."""
    with reporting_damage(part.location):
        data = inputs.read_range(part.location, blob.offset, blob.length)
        return decode_run(
            data,
            entries=blob.entries,
            checksum=blob.checksum,
            bits=run.bits,
            bucket=blob.bucket,
        )


def of_bucket(entries: Entries, number: int, bits: int) -> Entries:
    """The part of sorted entries that is in a bucket."""
    starts, ends = bucket_bounds(entries.hi, bits)
    return entries.take(slice(int(starts[number]), int(ends[number])))
