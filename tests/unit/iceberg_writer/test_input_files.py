from __future__ import annotations

from pathlib import Path

import pytest

from frazil.clients.iceberg.file_system import InputFiles, OutputFiles, is_missing
from frazil.errors import ConfigError, StorageError

DATA = b"0123456789"


@pytest.fixture
def location(tmp_path: Path) -> str:
    place = f"file:{tmp_path}/new/folder/a file%20.bin"
    OutputFiles({}).write_file(place, DATA)
    return place


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


def test_a_file_that_is_gone_is_told_from_one_that_cannot_be_read(tmp_path: Path) -> None:
    files = InputFiles({})
    lost, folder = str(tmp_path / "lost"), str(tmp_path)
    for place, missing in ((lost, True), (folder, False)):
        assert not files.exists(place)
        for attempt in (files.open, files.read, lambda each: files.read_range(each, 0, 1)):
            with pytest.raises(StorageError) as failure:
                attempt(place)
            assert place in failure.value.message
            assert is_missing(failure.value) is missing


def test_an_unknown_store_is_refused_before_anything_is_asked() -> None:
    with pytest.raises(ConfigError):
        InputFiles({}).exists("hdfs://host/x")


def test_half_a_credential_is_named_and_not_shown() -> None:
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
