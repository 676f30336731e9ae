from __future__ import annotations

from pathlib import Path

import pytest

from frazil.clients.iceberg import file_system
from frazil.clients.iceberg.file_system import InputFiles, OutputFiles, is_missing, is_within
from frazil.codec.malformed import MalformedFileError
from frazil.errors import ConfigError, StorageError

DATA = b"0123456789"


@pytest.fixture
def location(tmp_path: Path) -> str:
    location = f"file:{tmp_path}/new/folder/a file%20.bin"
    OutputFiles({}).write_file(location, DATA)
    return location


def test_what_was_written_is_read(location: str) -> None:
    files = InputFiles({})
    assert files.read(location) == DATA
    with files.open(location) as file:
        assert file.read_at(2, 7) == b"78"
    assert files.exists(location)


@pytest.mark.parametrize(
    ("offset", "length", "expected"),
    [(0, 10, DATA), (3, 4, b"3456"), (8, 5, b"89"), (10, 1, b""), (99, 1, b""), (2, 0, b"")],
)
def test_a_range_ends_where_the_file_does(
    location: str, offset: int, length: int, expected: bytes
) -> None:
    assert InputFiles({}).read_range(location, offset, length) == expected


def test_several_ranges_of_one_file_are_read_from_one_opening(location: str) -> None:
    with InputFiles({}).ranges(location) as read:
        assert (read(0, 2), read(8, 9), read(1, 1)) == (b"01", b"89", b"1")


def test_a_missing_file_is_distinguished_from_an_unreadable_one(tmp_path: Path) -> None:
    files = InputFiles({})
    lost, folder = str(tmp_path / "lost"), str(tmp_path)
    for location, missing in ((lost, True), (folder, False)):
        assert not files.exists(location)
        for attempt in (files.open, files.read, lambda each: files.read_range(each, 0, 1)):
            with pytest.raises(StorageError) as failure:
                attempt(location)
            assert location in failure.value.message
            assert is_missing(failure.value) is missing


def test_an_unknown_store_is_refused_before_any_request() -> None:
    with pytest.raises(ConfigError):
        InputFiles({}).exists("hdfs://host/x")


def test_partial_credentials_are_named_and_not_shown() -> None:
    files = InputFiles({"s3.access-key-id": "AKIA-HUSH", "s3.region": "eu-north-1"})
    with pytest.raises(ConfigError, match="access_key, region do not go together") as failure:
        files.read("s3://bucket/x")
    assert "HUSH" not in f"{failure.value}{failure.value.__cause__}"


def test_a_file_that_cannot_be_written_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot be created"):
        OutputFiles({}).write_file(f"{tmp_path}/file/x", DATA)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such device")
def test_a_full_disk_is_a_storage_error() -> None:
    with pytest.raises(StorageError, match="cannot be written"):
        OutputFiles({}).write_file("/dev/full", DATA)


@pytest.mark.fault("N51")
def test_what_is_too_large_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_system, "LARGEST_READ", 10)
    path = tmp_path / "large"
    path.write_bytes(b"0123456789")
    files = InputFiles({})
    assert files.read(str(path)) == b"0123456789"
    path.write_bytes(b"0123456789A")
    with pytest.raises(MalformedFileError, match="at most 10 bytes, found 11"):
        files.read(str(path))
    with pytest.raises(MalformedFileError, match="at most 10 bytes, found 11"):
        files.read_range(str(path), 0, 1 << 60)
    # What counts is what would be read.
    assert files.read_range(str(path), 8, 1 << 60) == b"89A"


@pytest.mark.fault("N51")
@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("s3://bucket/t/metadata/a.stats", True),
        ("s3a://bucket/t/metadata/a.stats", True),
        ("s3://bucket/t", False),
        ("s3://bucket/t2/metadata/a.stats", False),
        ("s3://bucket/metadata/a.stats", False),
        ("s3://other/t/metadata/a.stats", False),
        ("gs://bucket/t/metadata/a.stats", False),
        ("s3://bucket/t/../u/a.stats", False),
        ("s3://bucket/t/./a.stats", False),
        ("s3://data/there/a.parquet", True),
        ("file:///wh/./t/data/a.parquet", True),
        ("file:/wh/./t/data/a.parquet", True),
        ("/wh/./t/data/a.parquet", True),
        ("/wh/./t/data/../../../etc/passwd", False),
        ("file://host/wh/./t/data/a.parquet", False),
        ("/etc/passwd", False),
        ("http://bucket/t/a", False),
        ("", False),
    ],
)
def test_a_file_is_in_a_folder_of_the_table_or_elsewhere(location: str, *, expected: bool) -> None:
    folders = ("s3://bucket/t/", "s3n://data/there", "file:///wh/./t")
    assert is_within(location, folders) is expected
