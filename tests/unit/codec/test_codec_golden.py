"""Files that Iceberg for Java 1.12 wrote; tests/spark/lake/test_codec_interop.py says how."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from frazil.codec.deletes.deletion_vector import (
    DeletionVector,
    decode_deletion_vector,
    encode_deletion_vector,
)
from frazil.codec.deletes.position_deletes import decode_position_deletes
from frazil.codec.puffin import BlobCompression, read_blob, read_footer

GOLDEN = Path(__file__).resolve().parents[2] / "golden"


def deleted_by_spark(part: int) -> list[int]:
    """``delete … where id % 7 = 0 or id between 1100 and 1300``, a thousand ids to a file."""
    identities = np.arange(1000 * part, 1000 * (part + 1))
    chosen = (identities % 7 == 0) | ((identities >= 1100) & (identities <= 1300))
    return [int(each) for each in np.flatnonzero(chosen)]


@pytest.mark.parametrize(
    ("name", "positions"),
    [
        ("empty", []),
        ("runs", [*range(1000), *range(70_000, 200_000)]),
        ("mixed", [5, 9, *range(65_536, 131_000), 2**33 + 7]),
    ],
)
def test_a_vector_is_decoded(name: str, positions: list[int]) -> None:
    blob = (GOLDEN / f"{name}.deletion-vector").read_bytes()
    vector = decode_deletion_vector(blob, cardinality=len(positions))
    assert vector.positions().tolist() == positions
    # Java writes empty bitmaps for the keys between, which readers need not have.
    if name != "mixed":
        assert encode_deletion_vector(vector) == blob


def test_a_puffin_file_is_opened() -> None:
    data = (GOLDEN / "blobs.puffin").read_bytes()
    footer = read_footer(data, file_size=len(data))
    assert footer.properties == {"created-by": "them"}
    assert [blob.codec for blob in footer.blobs] == [BlobCompression.NONE, BlobCompression.ZSTD]
    for blob in footer.blobs:
        assert (blob.type, blob.fields) == ("some", (1, 2))
        assert (blob.snapshot_id, blob.sequence_number) == (7, 8)
        assert blob.properties == {"k": "v"}
        assert read_blob(blob, data[blob.offset : blob.end]) == b"hello" * 50


def test_vectors_that_spark_wrote_are_decoded() -> None:
    data = (GOLDEN / "deletes.puffin").read_bytes()
    footer = read_footer(data, file_size=len(data))
    assert len(footer.blobs) == 3
    for blob in footer.blobs:
        stored = data[blob.offset : blob.end]
        vector = decode_deletion_vector(stored, cardinality=int(blob.properties["cardinality"]))
        part = int(blob.properties["referenced-data-file"].split("part=")[1][0])
        assert vector.positions().tolist() == deleted_by_spark(part)
        assert encode_deletion_vector(vector) == stored


def test_position_deletes_that_spark_wrote_are_decoded() -> None:
    decoded = decode_position_deletes((GOLDEN / "deletes.parquet").read_bytes())
    ((path, vector),) = decoded.items()
    assert "/part=1/" in path
    assert vector == DeletionVector.from_positions(deleted_by_spark(1))
