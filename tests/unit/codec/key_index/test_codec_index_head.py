from __future__ import annotations

import random
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.codec.key_index.head import MANIFEST_BLOB_TYPE, read_head, write_head
from frazil.codec.key_index.manifest import decode_manifest, encode_manifest
from frazil.codec.key_index.run import BLOB_TYPE as RUN_BLOB_TYPE
from frazil.codec.malformed import MalformedFileError
from frazil.codec.puffin import Blob, BlobCompression, read_blob, read_footer, write_puffin
from tests.support.codec.fuzz import bent
from tests.support.lake.manifests import SAMPLE, manifests
from tests.support.sampling import a_seed, examples

if TYPE_CHECKING:
    from frazil.model.key_index import IndexManifest

YOUNG = b"the bytes of a run, whatever they are"
HEAD = write_head(SAMPLE, YOUNG).data
EMPTY = replace(SAMPLE, young_entries=0)
FACTS = {
    "table_uuid": SAMPLE.table_uuid,
    "snapshot_id": str(SAMPLE.snapshot_id),
    "key_field_ids": "1,4",
    "hash_bits": "128",
    "num_rows": "972",
}


def blob(type_: str, data: bytes, **more: Any) -> Blob:
    return Blob(type_, data, **{"properties": {"crc32": str(zlib.crc32(data))}, **more})


MANIFEST_BLOB = blob(MANIFEST_BLOB_TYPE, encode_manifest(SAMPLE))
YOUNG_BLOB = blob(RUN_BLOB_TYPE, YOUNG)


def is_refused_or_right(data: bytes) -> bool:
    """Whether it was refused; what was not must be what was written."""
    try:
        found = read_head(data)
    except MalformedFileError:
        return True
    assert found == (SAMPLE, YOUNG)
    return False


@given(manifests(), st.binary(max_size=200))
@examples(50)
def test_what_is_written_is_read_back(manifest: IndexManifest, run: bytes) -> None:
    young = run if manifest.young_entries else None
    assert read_head(write_head(manifest, young).data) == (manifest, young)


def test_a_head_without_young_entries_has_no_run() -> None:
    head = write_head(EMPTY, None)
    assert [each.type for each in head.blobs] == ["frazil-key-index-v1"]
    assert read_head(head.data) == (EMPTY, None)


def test_a_head_is_a_puffin_file_that_says_what_it_is_about() -> None:
    footer = read_footer(HEAD, file_size=len(HEAD))
    manifest, young = footer.blobs
    assert FACTS.items() <= footer.properties.items()
    assert footer.properties["created-by"].startswith("frazil ")
    assert (manifest.type, manifest.codec) == ("frazil-key-index-v1", BlobCompression.ZSTD)
    assert (young.type, young.codec) == ("frazil-key-index-run-v1", BlobCompression.NONE)
    assert HEAD[young.offset : young.end] == YOUNG
    for each in footer.blobs:
        assert (each.fields, each.snapshot_id) == ((1, 4), SAMPLE.snapshot_id)
    assert (manifest.properties["num_rows"], young.properties["num_rows"]) == ("972", "2")
    content = bytes(read_blob(manifest, HEAD[manifest.offset : manifest.end]))
    assert decode_manifest(content) == SAMPLE
    assert manifest.properties["crc32"] == str(zlib.crc32(content))


def test_a_run_without_entries_and_entries_without_a_run_are_not_written() -> None:
    for manifest, young in ((EMPTY, YOUNG), (SAMPLE, None)):
        with pytest.raises(ValueError, match="exactly when"):
            write_head(manifest, young)


def test_a_head_cut_at_any_byte_is_refused() -> None:
    for length in range(len(HEAD)):
        assert is_refused_or_right(HEAD[:length])
        assert is_refused_or_right(HEAD[len(HEAD) - length :])


def test_a_head_with_any_bit_flipped_is_refused_or_read_as_it_was_written() -> None:
    refused = 0
    # A quarter of the bits, others in every run.
    for bit in range(a_seed() % 4, 8 * len(HEAD), 4):
        data = bytearray(HEAD)
        data[bit // 8] ^= 1 << bit % 8
        refused += is_refused_or_right(bytes(data))
    # What no one relies on may change: the name of the writer, a count next to a blob.
    assert refused > len(HEAD)


def test_a_head_with_any_byte_replaced_is_refused_or_read_as_it_was_written() -> None:
    chance = random.Random(7)  # noqa: S311 - repeatable on purpose
    for offset in range(len(HEAD)):
        data = bytearray(HEAD)
        data[offset] = chance.randrange(256)
        is_refused_or_right(bytes(data))


@pytest.mark.parametrize("seed", range(4))
def test_a_bent_head_is_refused_or_read_as_it_was_written(seed: int) -> None:
    for number in range(500):
        chance = random.Random(f"{seed}/{number}")  # noqa: S311 - repeatable on purpose
        is_refused_or_right(bent(HEAD, chance))


@pytest.mark.parametrize("fact", FACTS)
def test_a_footer_about_something_else_is_refused(fact: str) -> None:
    blobs = [MANIFEST_BLOB, YOUNG_BLOB]
    assert read_head(write_puffin(blobs, FACTS).data) == (SAMPLE, YOUNG)
    for facts in ({**FACTS, fact: "7"}, {key: FACTS[key] for key in FACTS if key != fact}):
        with pytest.raises(MalformedFileError, match=f"the manifest's `{fact}`"):
            read_head(write_puffin(blobs, facts).data)


@pytest.mark.parametrize(
    ("blobs", "expected"),
    [
        ([], "expected a manifest"),
        ([YOUNG_BLOB], "expected a manifest"),
        ([MANIFEST_BLOB], "a run of 2 young entries"),
        ([MANIFEST_BLOB, MANIFEST_BLOB, YOUNG_BLOB], "one blob of type frazil-key-index-v1"),
        ([MANIFEST_BLOB, YOUNG_BLOB, YOUNG_BLOB], "one blob of type frazil-key-index-run-v1"),
        ([MANIFEST_BLOB, Blob(RUN_BLOB_TYPE, YOUNG)], "another CRC-32"),
        ([MANIFEST_BLOB, blob(RUN_BLOB_TYPE, YOUNG, properties={"crc32": "1"})], "another CRC-32"),
        ([blob(MANIFEST_BLOB_TYPE, b"{}"), YOUNG_BLOB], "a manifest with a version"),
        ([blob(MANIFEST_BLOB_TYPE, b'{"version":2}'), YOUNG_BLOB], "found version 2"),
    ],
)
def test_a_head_of_other_blobs_is_refused(blobs: list[Blob], expected: str) -> None:
    with pytest.raises(MalformedFileError, match=expected):
        read_head(write_puffin(blobs, FACTS).data)


def test_young_entries_that_the_manifest_does_not_have_are_refused() -> None:
    manifest = blob(MANIFEST_BLOB_TYPE, encode_manifest(EMPTY))
    facts = {**FACTS, "num_rows": "970"}
    assert read_head(write_puffin([manifest], facts).data) == (EMPTY, None)
    with pytest.raises(MalformedFileError, match="a run of 0 young entries"):
        read_head(write_puffin([manifest, YOUNG_BLOB], facts).data)


def test_blobs_of_other_types_are_passed_over() -> None:
    blobs = [Blob("apache-datasketches-theta-v1", b"x"), MANIFEST_BLOB, YOUNG_BLOB]
    assert read_head(write_puffin(blobs, FACTS).data) == (SAMPLE, YOUNG)
