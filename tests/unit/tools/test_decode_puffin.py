"""``frazil decode puffin`` from the command line."""

from __future__ import annotations

import json
import resource
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frazil.cli.exit_codes import ExitCode
from frazil.cli.main import main
from frazil.codec.deletes.deletion_vector import (
    DeletionVector,
    deletion_vector_puffin,
    encode_deletion_vector,
)
from frazil.codec.puffin import Blob, BlobCompression, PuffinFile, write_puffin

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
Capture = pytest.CaptureFixture[str]


def written(folder: Path, file: PuffinFile) -> str:
    path = folder / "some.puffin"
    path.write_bytes(file.data)
    return str(path)


def lines(capsys: Capture) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_json_lines_tell_the_file_and_then_each_blob(capsys: Capture) -> None:
    path = GOLDEN / "deletes.puffin"
    assert main(["decode", "puffin", str(path), "-o", "json"]) == ExitCode.DONE
    file, *blobs = lines(capsys)
    assert file["file"] == str(path)
    assert (file["size"], file["blobs"]) == (path.stat().st_size, 3)
    assert file["properties"]["created-by"].startswith("Apache Iceberg 1.12")
    assert blobs[0]["offset"] == 4
    assert sum(blob["length"] for blob in blobs) == file["size"] - file["footer_size"] - 4
    one = next(blob for blob in blobs if "part=1/" in blob["properties"]["referenced-data-file"])
    assert (one["type"], one["fields"], one["codec"]) == (
        "deletion-vector-v1",
        [2147483645],
        "none",
    )
    assert (one["snapshot_id"], one["sequence_number"]) == ("-1", -1)
    assert (one["cardinality"], one["min"], one["max"]) == (316, 1, 995)
    assert one["crc_valid"] is True
    assert "damage" not in one


def test_the_table_shows_the_same_to_people(capsys: Capture, tmp_path: Path) -> None:
    blobs = [Blob("some\x1b[2J", b"x" * 9, (1, 2), 7, 8, BlobCompression.ZSTD, {"key": "wärts"})]
    path = written(tmp_path, write_puffin(blobs, {"created-by": "me\n"}))
    assert main(["decode", "puffin", path]) == ExitCode.DONE
    head, created, header, row = capsys.readouterr().out.splitlines()
    assert head.startswith(f"# {path} (")
    assert created == r"# created-by: 'me\n'"
    assert header.split()[:3] == ["BLOB", "TYPE", "OFFSET"]
    assert row.split()[:2] == ["0", r"'some\x1b[2J'"]
    assert row.split()[-5:] == ["zstd", "7", "8", "1,2", "key=wärts"]


def test_a_vector_that_deletes_nothing_has_no_bounds(capsys: Capture, tmp_path: Path) -> None:
    blob = Blob(
        "deletion-vector-v1",
        encode_deletion_vector(DeletionVector()),
        properties={"cardinality": "0"},
    )
    path = written(tmp_path, write_puffin([blob], {}))
    assert main(["decode", "puffin", path, "-o", "json"]) == ExitCode.DONE
    assert lines(capsys)[1]["cardinality"] == 0


def test_a_footer_longer_than_the_first_read_is_read_completely(
    capsys: Capture, tmp_path: Path
) -> None:
    blobs = [Blob("some", b"", properties={"path": "x" * 1000}) for _ in range(100)]
    path = written(tmp_path, write_puffin(blobs, {}))
    assert main(["decode", "puffin", path, "-o", "json"]) == ExitCode.DONE
    assert len(lines(capsys)) == 101


@pytest.mark.parametrize("output", ["json", "table"])
def test_damaged_vectors_are_shown_with_the_others_and_fail_the_command(
    output: str, capsys: Capture, tmp_path: Path
) -> None:
    vectors = {path: DeletionVector.from_positions([1, 2]) for path in ("a", "b", "c")}
    file = deletion_vector_puffin(vectors)
    data = bytearray(file.data)
    data[file.blobs[1].end - 1] ^= 1
    path = tmp_path / "bent.puffin"
    path.write_bytes(data)
    assert main(["decode", "puffin", str(path), "-o", output]) == ExitCode.FAILED
    shown = capsys.readouterr()
    assert f"error FRZ-LAK-02: deletion vectors of {path} are damaged: 1." in shown.err
    assert len(shown.err.splitlines()) == 1
    if output == "json":
        facts = [json.loads(line) for line in shown.out.splitlines()[1:]]
        assert [each["crc_valid"] for each in facts] == [True, False, True]
        assert "CRC-32" in facts[1]["damage"]
    else:
        assert shown.out.count("damage=") == 1


@pytest.mark.parametrize(
    ("codec", "cardinality", "expected"),
    [
        (BlobCompression.ZSTD, "2", "never compressed"),
        (BlobCompression.NONE, "3", "another cardinality"),
        (BlobCompression.NONE, "9" * 5000, "another cardinality"),
    ],
)
def test_a_vector_that_belies_its_footer_is_damaged(
    codec: BlobCompression, cardinality: str, expected: str, capsys: Capture, tmp_path: Path
) -> None:
    data = encode_deletion_vector(DeletionVector.from_positions([1, 2]))
    properties = {"cardinality": cardinality}
    blob = Blob("deletion-vector-v1", data, codec=codec, properties=properties)
    path = written(tmp_path, write_puffin([blob], {}))
    assert main(["decode", "puffin", path, "-o", "json"]) == ExitCode.FAILED
    assert expected in lines(capsys)[1]["damage"]


@pytest.mark.parametrize("content", [b"", b"PFA", b"PFA1", b"PAR1" * 10, b"PFA1" + bytes(100)])
def test_what_is_no_puffin_file_fails_with_one_sentence(
    content: bytes, capsys: Capture, tmp_path: Path
) -> None:
    path = tmp_path / "some.puffin"
    path.write_bytes(content)
    assert main(["decode", "puffin", str(path)]) == ExitCode.FAILED
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"error FRZ-LAK-02: {path} is damaged or no Puffin file: at byte ")
    assert len(shown.err.splitlines()) == 1


def test_a_file_that_is_not_there_is_wrong_usage(capsys: Capture, tmp_path: Path) -> None:
    for path in (tmp_path / "missing.puffin", tmp_path):
        assert main(["decode", "puffin", str(path)]) == ExitCode.USAGE
        assert f"error FRZ-CFG-01: {path} cannot be opened" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such file")
def test_a_file_that_cannot_be_read_is_the_storages_fault(capsys: Capture) -> None:
    # It opens, and then every read of a process's unmapped memory fails.
    assert main(["decode", "puffin", "/proc/self/mem"]) == ExitCode.FAILED
    assert "FRZ-LAK-02" in capsys.readouterr().err


def test_a_file_larger_than_the_memory_is_read_by_ranges(tmp_path: Path) -> None:
    """Ten gigabytes, of which the disk holds the few that were written."""
    vector = encode_deletion_vector(DeletionVector.from_positions(np.arange(10)))
    small = write_puffin([Blob("deletion-vector-v1", vector, properties={"cardinality": "10"})], {})
    ten_gigabytes = 10 << 30
    footer = small.data[-small.footer_size :].replace(
        b'"offset":4,', f'"offset":{ten_gigabytes},'.encode()
    )
    payload = footer[4:-12]
    path = tmp_path / "large.puffin"
    with path.open("wb") as file:
        file.write(b"PFA1")
        file.seek(ten_gigabytes)
        file.write(
            vector + b"PFA1" + payload + struct.pack("<i", len(payload)) + bytes(4) + b"PFA1"
        )

    def little_memory() -> None:
        # Other systems take no such limit.
        if sys.platform == "linux":
            resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))

    finished = subprocess.run(
        [sys.executable, "-m", "frazil.cli", "decode", "puffin", str(path), "-o", "json"],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=little_memory,
    )
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout.splitlines()[1])["cardinality"] == 10
