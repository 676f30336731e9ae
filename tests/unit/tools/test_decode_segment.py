"""``frazil decode segment`` from the command line."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from frazil.cli.exit_codes import ExitCode
from frazil.cli.main import main
from tests.support.kafscale.segments import (
    CREATED,
    TIMESTAMP,
    Message,
    client_batch,
    index_of,
    raw_batch,
    record,
    segment,
)

if TYPE_CHECKING:
    from pathlib import Path

Capture = pytest.CaptureFixture[str]

_TRANSACTIONAL, _CONTROL = 1 << 4, 1 << 5
_GZIP = 1


def written(folder: Path, data: bytes, name: str = "segment-00000000000000000007.kfs") -> str:
    path = folder / name
    path.write_bytes(data)
    return str(path)


def lines(capsys: Capture) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def two_batches() -> bytes:
    first = client_batch(7, [Message(b"a"), Message(b"b", timestamp=TIMESTAMP + 5)])
    second = client_batch(9, [Message(b"c" * 1000)], compression=_GZIP)
    return segment([first, second], base=7)


def test_json_lines_tell_the_segment_and_then_each_batch(capsys: Capture, tmp_path: Path) -> None:
    data = two_batches()
    path = written(tmp_path, data)
    assert main(["decode", "segment", path, "-o", "json"]) == ExitCode.DONE
    file, first, second = lines(capsys)
    assert file == {
        "file": path,
        "kind": "segment",
        "size": len(data),
        "base_offset": 7,
        "last_offset": 9,
        "message_count": 3,
        "created_ms": CREATED,
        "footer_offset": 9,
        "batches": 2,
        "records": 3,
        "readable_records": 3,
    }
    assert (first["batch"], first["byte"], first["codec"]) == (0, 32, "none")
    assert (first["base_offset"], first["last_offset"], first["records"]) == (7, 8, 2)
    assert first["base_timestamp_ms"] == TIMESTAMP
    assert first["newest_timestamp_ms"] == TIMESTAMP + 5
    assert (second["byte"], second["codec"]) == (32 + 61 + first["bytes"], "gzip")
    assert second["producer_id"] == "-1"


def test_the_table_shows_the_same_to_people(capsys: Capture, tmp_path: Path) -> None:
    path = written(tmp_path, two_batches())
    assert main(["decode", "segment", path, "--summary"]) == ExitCode.DONE
    head, created, last, count, header, first, second = capsys.readouterr().out.splitlines()
    assert head.startswith(f"# {path} (")
    assert created == (
        "# base offset 7, 3 messages by its header, created 2023-11-14T22:13:20.123Z"
    )
    assert last == "# last offset 9, 9 by its footer"
    assert count == "# 3 records; checksums are right"
    assert header.split()[:3] == ["BATCH", "BYTE", "OFFSETS"]
    assert first.split()[:6] == ["0", "32", "7-8", "2", "none", "0x0"]
    assert "2023-11-14T22:13:20.000Z to 2023-11-14T22:13:20.005Z" in first
    assert second.split()[2:5] == ["9-9", "1", "gzip"]


def test_records_are_lines_of_text_or_base64(capsys: Capture, tmp_path: Path) -> None:
    messages = [
        Message(b'{"a":\n1}', key="schlüssel".encode(), headers=(("h", b"x"), ("h", None))),
        Message(None, key=b""),
        Message(b"\xff\x00", headers=(("bytes", b"\xfe"),)),
    ]
    path = written(tmp_path, segment([client_batch(7, messages)], base=7))
    assert main(["decode", "segment", path, "--records"]) == ExitCode.DONE
    assert lines(capsys) == [
        {
            "offset": 7,
            "timestamp_ms": TIMESTAMP,
            "key": "schlüssel",
            "value": '{"a":\n1}',
            "headers": [{"key": "h", "value": "x"}, {"key": "h", "value": None}],
        },
        {"offset": 8, "timestamp_ms": TIMESTAMP, "key": "", "value": None, "headers": []},
        {
            "offset": 9,
            "timestamp_ms": TIMESTAMP,
            "key": None,
            "value": {"base64": "/wA="},
            "headers": [{"key": "bytes", "value": {"base64": "/g=="}}],
        },
    ]


def test_what_a_terminal_would_obey_is_spelt(capsys: Capture, tmp_path: Path) -> None:
    value = "\x1b[2J\x9b\u202e".encode()
    path = written(tmp_path, segment([client_batch(0, [Message(value)])]), "bad\x1b[2J.kfs")
    assert main(["decode", "segment", path, "--records"]) == ExitCode.DONE
    shown = capsys.readouterr().out
    assert shown.strip().isprintable()
    assert json.loads(shown)["value"] == value.decode()
    assert main(["decode", "segment", path]) == ExitCode.DONE
    assert "\x1b" not in capsys.readouterr().out


def test_records_of_aborted_transactions_are_counted_and_not_shown(
    capsys: Capture, tmp_path: Path
) -> None:
    kept = raw_batch(record(b"kept"), count=1, base=0)
    aborted = raw_batch(
        record(b"aborted"), count=1, base=1, attributes=_TRANSACTIONAL, producer_id=5
    )
    abort = raw_batch(
        record(b"", key=struct.pack(">hh", 0, 0)),
        count=1,
        base=2,
        attributes=_TRANSACTIONAL | _CONTROL,
        producer_id=5,
    )
    path = written(tmp_path, segment([kept, aborted, abort]))
    assert main(["decode", "segment", path, "--records"]) == ExitCode.DONE
    assert [each["value"] for each in lines(capsys)] == ["kept"]
    assert main(["decode", "segment", path, "-o", "json"]) == ExitCode.DONE
    file, _, second, third = lines(capsys)
    assert (file["records"], file["readable_records"]) == (3, 1)
    assert (second["transactional"], second["control"]) == (True, False)
    assert (third["control"], third["producer_id"]) == (True, "5")
    assert main(["decode", "segment", path]) == ExitCode.DONE
    assert "0x30 (transactional, control)" in capsys.readouterr().out


def test_timestamps_that_no_calendar_has_are_numbers(capsys: Capture, tmp_path: Path) -> None:
    batch = raw_batch(record(b"x"), count=1, newest=(1 << 63) - 1)
    path = written(tmp_path, segment([batch]))
    assert main(["decode", "segment", path]) == ExitCode.DONE
    assert "to 9223372036854775807 ms" in capsys.readouterr().out


def test_an_index_is_recognised(capsys: Capture, tmp_path: Path) -> None:
    path = written(tmp_path, index_of(7), "segment-00000000000000000007.index")
    assert main(["decode", "segment", path, "-o", "json"]) == ExitCode.DONE
    file, entry = lines(capsys)
    assert (file["kind"], file["interval"], file["entries"]) == ("index", 100, 1)
    assert entry == {"offset": 7, "byte": 32}
    assert main(["decode", "segment", path]) == ExitCode.DONE
    assert capsys.readouterr().out.splitlines()[-1].split() == ["7", "32"]


def bent(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("options", [[], ["--records"], ["-o", "json"]])
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"KAFS",
        b"IDX\0",
        b"PAR1" * 20,
        two_batches()[:-20],
        bent(two_batches(), 100),
        segment([bent(client_batch(0, [Message(b"value")]), 65)]),
        segment([raw_batch(b"\x7fno records", count=1)]),
    ],
)
def test_what_is_damaged_fails_with_one_sentence(
    data: bytes, options: list[str], capsys: Capture, tmp_path: Path
) -> None:
    path = written(tmp_path, data)
    assert main(["decode", "segment", path, *options]) == ExitCode.FAILED
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"error FRZ-LAK-02: {path} is damaged or no segment: at byte ")
    assert len(shown.err.splitlines()) == 1


def test_a_file_that_is_not_there_is_wrong_usage(capsys: Capture, tmp_path: Path) -> None:
    for path in (tmp_path / "missing.kfs", tmp_path, "s3://bucket", "s3://bucket/", "s3:///key"):
        assert main(["decode", "segment", str(path)]) == ExitCode.USAGE
        assert "error FRZ-CFG-01" in capsys.readouterr().err


# In a process of its own, whose highest memory use nothing else has raised.
DECODE = """
import resource, sys
from frazil.cli.main import main
small, large = sys.argv[1:]
assert main(["decode", "segment", small, "--records"]) == 0
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert main(["decode", "segment", large, "--records"]) == 0
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, file=sys.stderr)
"""


def test_records_that_open_to_much_are_never_all_in_memory(tmp_path: Path) -> None:
    small = written(tmp_path, segment([client_batch(0, [Message(b"a")])]), "small.kfs")
    batch = client_batch(0, [Message(b"a" * (1 << 20))] * 16, compression=_GZIP)
    large = written(tmp_path, segment([batch] * 10), "large.kfs")
    done = subprocess.run(
        [sys.executable, "-c", DECODE, small, large],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=True,
    )
    # All values together are 160 MiB.
    assert int(done.stderr) < 112 << 10
