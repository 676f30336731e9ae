from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.codec.key_index.manifest import decode_manifest, encode_manifest
from frazil.codec.malformed import MalformedFileError
from tests.support.lake.manifests import SAMPLE, manifests

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.model.key_index import IndexManifest

DOCUMENT: dict[str, Any] = json.loads(encode_manifest(SAMPLE))
Path = tuple[str | int, ...]


def bytes_of(document: object) -> bytes:
    return json.dumps(document).encode()


def paths(node: object, path: Path = ()) -> Iterator[Path]:
    """Every path in the document."""
    yield path
    if isinstance(node, dict | list):
        for step, inner in node.items() if isinstance(node, dict) else enumerate(node):
            yield from paths(inner, (*path, step))


def changed(path: Path, value: object) -> dict[str, Any]:
    document = copy.deepcopy(DOCUMENT)
    node: Any = document
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = value
    return document


@given(manifests())
def test_what_is_written_is_read_back(manifest: IndexManifest) -> None:
    data = encode_manifest(manifest)
    assert decode_manifest(data) == manifest
    assert encode_manifest(decode_manifest(data)) == data


def test_every_folder_and_partition_is_written_once() -> None:
    assert DOCUMENT["folders"] == [
        "s3://lake/users/_index/",
        "s3://lake/users/data/day=2/",
        "s3://lake/users/data/",
    ]
    assert DOCUMENT["placements"] == [
        {"spec_id": 1, "partition": '{"1000":2}'},
        {"spec_id": 0, "partition": "{}"},
    ]


def test_a_delete_of_another_data_file_is_not_written() -> None:
    vector, other = SAMPLE.files[0].deletes[0], SAMPLE.files[1]
    wrong = replace(SAMPLE, files=(replace(other, deletes=(vector,)),))
    with pytest.raises(ValueError, match="another data file"):
        encode_manifest(wrong)


JUNK = [
    None, True, -1, 0, 1, 5, 1.5, 2**31, 2**63, 2**70, "", "x", "\ud800", "vector", "long", "time",
    "decimal(3, 2)", "uuid", [], [1], [None], ["x"], [0, 0], [7, 7], {}, {"x": 1},
]  # fmt: skip


@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_no_value_in_any_member_breaks_the_reader(junk: object) -> None:
    for path in list(paths(DOCUMENT))[1:]:
        try:
            found = decode_manifest(bytes_of(changed(path, junk)))
        except MalformedFileError as refused:
            assert refused.what.startswith("expected")  # noqa: PT017 - most values, not all
            continue
        assert decode_manifest(encode_manifest(found)) == found


@pytest.mark.parametrize("junk", [*JUNK[:-2], {}], ids=repr)
def test_what_is_no_object_is_no_manifest(junk: object) -> None:
    with pytest.raises(MalformedFileError, match="a manifest with a version"):
        decode_manifest(bytes_of(junk))


def objects() -> list[Path]:
    found = []
    for path in paths(DOCUMENT):
        node: Any = DOCUMENT
        for step in path:
            node = node[step]
        if isinstance(node, dict):
            found.append(path)
    return found


@pytest.mark.parametrize("path", objects(), ids=str)
def test_every_member_must_be_there_and_none_that_is_not_known(path: Path) -> None:
    node: Any = DOCUMENT
    for step in path:
        node = node[step]
    for member in node:
        document = copy.deepcopy(DOCUMENT)
        inner: Any = document
        for step in path:
            inner = inner[step]
        del inner[member]
        expected = f"without '{member}'" if member != "version" else "with a version"
        with pytest.raises(MalformedFileError, match=expected):
            decode_manifest(bytes_of(document))
    with pytest.raises(MalformedFileError, match="with 'later'"):
        decode_manifest(bytes_of(changed((*path, "later"), 1)))


@pytest.mark.parametrize("version", [0, 2, 99, -1])
def test_another_version_is_refused_before_anything_else_is_checked(version: int) -> None:
    with pytest.raises(MalformedFileError, match=f"of version 1, found version {version}"):
        decode_manifest(bytes_of({"version": version, "what": "unknown yet"}))


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (("files", "ordinal"), [6, 6], "`ordinal` of the files to be different"),
        (("next_ordinal",), 6, "`ordinal` of the files to be a number from 0 to 5"),
        (("next_ordinal",), 0, "a number of nothing"),
        (("next_ordinal",), 2**31 + 1, "from 0 to 2147483648"),
        (("files", "rows"), [1, -1], "`rows` of the files"),
        (("files", "size"), [-1, 1], "`size` of the files"),
        (("files", "size"), [1], "the columns of the files to have one length"),
        (("files", "name"), ["a.parquet", 1], "`name` of the files to be text"),
        (("files", "folder"), [1, 3], "`folder` of the files to be a number from 0 to 2"),
        (("files", "placement"), [2, 0], "`placement` of the files"),
        (("placements", 0, "spec_id"), -1, "`spec_id` of placement 0"),
        (("folders",), "s3://", "`folders` of the manifest to be a list"),
        (("deletes", "file"), [2, 3], "`file` of the deletes to be the ordinal of a file"),
        (("deletes", "kind"), ["vector", "equality"], "to be vector or positions"),
        (("deletes", "kind"), ["vector", "vector"], "that of a vector"),
        (("deletes", "offset"), [None, None], "that of a vector"),
        (("deletes", "length"), [None, None], "that of a vector"),
        (("deletes", "offset"), [4, 4], "that of a vector"),
        (("deletes", "shared"), [True, True], "that of a vector"),
        (("deletes", "shared"), [0, 1], "true or false"),
        (("deletes", "size"), [1, -1], "`size` of the deletes"),
        (("deletes", "rows"), [1], "the columns of the deletes"),
        (("runs", 0, "bits"), 33, "`bits` of run 0 to be a number from 0 to 32"),
        (("runs", 0, "bits"), 0, "`bucket` of the blobs to be a number from 0 to 0"),
        (("runs", 0, "blobs", "bucket"), [1, 1], "`bucket` of the blobs to be different"),
        (("runs", 0, "blobs", "bucket"), [0, 2], "from 0 to 1"),
        (("runs", 0, "blobs", "entries"), [1, 0], "`entries` of the blobs to be a number from 1"),
        (("runs", 0, "blobs", "checksum"), [1, 2**32], "`checksum` of the blobs"),
        (("runs", 0, "blobs", "offset"), [-4, 4], "`offset` of the blobs"),
        (("runs", 0, "blobs", "length"), [4, 4000], "within the blob's file"),
        (("runs", 0, "blobs", "part"), [0, 1], "`part` of the blobs to be a number from 0 to 0"),
        (("runs", 0, "parts", "size"), [-1], "`size` of the parts"),
        (("runs", 0, "parts", "size"), [], "the columns of the parts"),
        (("runs", 0, "name"), None, "`name` of run 0 to be text"),
        (("runs",), DOCUMENT["runs"] * 2, "runs of different names"),
        (("runs", 0), 1, "run 0 to be an object"),
        (("young_entries",), -1, "`young_entries` of the manifest"),
        (("idle_deletes",), -1, "`idle_deletes` of the manifest"),
        (("snapshot_id",), 2**63, "`snapshot_id` of the manifest"),
        (("snapshot_id",), 1.0, "`snapshot_id` of the manifest"),
        (("table_uuid",), "\ud800", "`table_uuid` of the manifest to be text"),
        (("sequence_type",), "interval", "a type of Iceberg's, found 'interval'"),
        (("key", "field_ids"), [1, 1], "one for each type"),
        (("key", "field_ids"), [1], "one for each type"),
        (("key", "types"), ["long", "time"], "types that a key can have"),
        (("key", "types"), ["long", "interval"], "a type of Iceberg's"),
        (("key", "hash"), "uuid", "`hash` of the key to be sha256"),
    ],
)
def test_a_manifest_that_cannot_be_is_refused_with_the_reason(
    path: Path, value: object, expected: str
) -> None:
    with pytest.raises(MalformedFileError) as refused:
        decode_manifest(bytes_of(changed(path, value)))
    assert expected in refused.value.what


def test_two_files_at_one_location_are_refused() -> None:
    document = changed(("files", "folder"), [1, 1])
    document["files"]["name"] = ["a.parquet", "a.parquet"]
    with pytest.raises(MalformedFileError, match="`name` of the files to be different"):
        decode_manifest(bytes_of(document))


def test_a_key_without_columns_is_refused() -> None:
    document = changed(("key", "types"), [])
    document["key"]["field_ids"] = []
    with pytest.raises(MalformedFileError, match="types that a key can have"):
        decode_manifest(bytes_of(document))


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\xff", b"{", b"[" * 100_000, b'{"version":1,"version":1}', b'{"version":NaN}',
        b'{"version":' + b"9" * 5000 + b"}", "{}".encode("utf-16"), b"\xef\xbb\xbf{}",
    ],
    ids=lambda data: repr(data[:12]),
)  # fmt: skip
def test_what_is_not_json_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedFileError, match="expected a JSON document"):
        decode_manifest(data)


@given(st.binary(max_size=80))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    with pytest.raises(MalformedFileError):
        decode_manifest(data)


def test_a_manifest_cut_at_any_byte_is_refused() -> None:
    data = encode_manifest(SAMPLE)
    for length in range(len(data)):
        with pytest.raises(MalformedFileError):
            decode_manifest(data[:length])
