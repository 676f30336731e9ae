from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from frazil.hooks import ManualClock
from frazil.mirror.index.run_cache import BlobKey, RunCache, shared_run_cache
from tests.unit.codec.key_index.index_rows import rows_of
from tests.unit.mirror.cached_entries import COUNT, SIZE, SPACE, Fetcher, entries_like, key_of

ROOT = Path(__file__).resolve().parents[3]


def cached_files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


@pytest.mark.parametrize("sequence", [False, True])
def test_a_blob_is_fetched_once(tmp_path: Path, *, sequence: bool) -> None:
    fetcher = Fetcher()
    expected = rows_of(entries_like(1, sequence=sequence))
    for cache in (RunCache(tmp_path / "new" / "folder", SPACE),) * 2:
        found = cache.load(key_of(1), fetcher.of(1, sequence=sequence))
        assert rows_of(found) == expected
    # Another process, or this one later.
    later = RunCache(tmp_path / "new" / "folder", SPACE).find(key_of(1))
    assert later is not None
    assert rows_of(later) == expected
    assert fetcher.fetched == [1]


def test_what_is_found_is_a_view_into_the_file(tmp_path: Path) -> None:
    found = RunCache(tmp_path, SPACE).load(key_of(1), Fetcher().of(1))
    assert not found.hi.flags.owndata
    assert not found.hi.flags.writeable


def test_blobs_are_distinguished(tmp_path: Path) -> None:
    cache = RunCache(tmp_path, SPACE)
    fetcher = Fetcher()
    for number in (1, 2):
        assert rows_of(cache.load(key_of(number), fetcher.of(number))) == rows_of(
            entries_like(number)
        )
    assert cache.find(key_of(3)) is None
    assert len({key_of(number).file_name for number in range(100)}) == 100


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "renamed", "garbage"])
def test_a_damaged_file_is_never_trusted_and_is_filled_again(tmp_path: Path, damage: str) -> None:
    fetcher = Fetcher()
    RunCache(tmp_path, SPACE).load(key_of(1), fetcher.of(1))
    (path,) = cached_files(tmp_path)
    data = bytearray(path.read_bytes())
    match damage:
        case "flipped":
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
        case "cut":
            path.write_bytes(data[:-1])
        case "empty":
            path.write_bytes(b"")
        case "renamed":
            RunCache(tmp_path, SPACE).load(key_of(2), fetcher.of(2))
            (tmp_path / key_of(2).file_name).replace(path)
        case _:
            path.write_bytes(b"x" * 5000)
    fetcher.fetched.clear()
    cache = RunCache(tmp_path, SPACE)
    assert cache.find(key_of(1)) is None
    assert not path.exists()
    assert rows_of(cache.load(key_of(1), fetcher.of(1))) == rows_of(entries_like(1))
    assert fetcher.fetched == [1]
    assert rows_of(RunCache(tmp_path, SPACE).load(key_of(1), fetcher.of(1))) == rows_of(
        entries_like(1)
    )
    assert fetcher.fetched == [1]


def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    RunCache(tmp_path, SPACE).load(key_of(1), Fetcher().of(1))
    (path,) = cached_files(tmp_path)
    data = path.read_bytes()
    for at in range(0, len(data), 97):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
        assert RunCache(tmp_path, SPACE).find(key_of(1)) is None
    path.write_bytes(data)
    assert RunCache(tmp_path, SPACE).find(key_of(1)) is not None


def test_a_blob_with_another_number_of_entries_is_another_one(tmp_path: Path) -> None:
    RunCache(tmp_path, SPACE).load(
        BlobKey("s3://x", 0, 1, 2, COUNT + 1),
        Fetcher().of(1),
    )
    assert RunCache(tmp_path, SPACE).find(BlobKey("s3://x", 0, 1, 2, COUNT + 1)) is None


# Bounds.


def noon() -> ManualClock:
    return ManualClock(datetime(2030, 1, 1, 12, tzinfo=UTC))


def test_the_least_recently_used_are_removed_when_space_is_needed(tmp_path: Path) -> None:
    clock, fetcher = noon(), Fetcher()
    cache = RunCache(tmp_path, 3 * SIZE, clock=clock)
    for number in (1, 2, 3):
        cache.load(key_of(number), fetcher.of(number))
        clock.advance(60 * 60)
    # Used again, so the second is the oldest now.
    cache.load(key_of(1), fetcher.of(1))
    clock.advance(60 * 60)
    cache.load(key_of(4), fetcher.of(4))
    names = {path.name for path in cached_files(tmp_path)}
    assert names == {key_of(number).file_name for number in (1, 3, 4)}
    assert sum(path.stat().st_size for path in cached_files(tmp_path)) <= 3 * SIZE


def test_what_is_in_use_is_not_removed_for_more_of_the_same(tmp_path: Path) -> None:
    clock, fetcher = noon(), Fetcher()
    cache = RunCache(tmp_path, 2 * SIZE, clock=clock)
    for _ in range(3):
        for number in (1, 2, 3):
            assert rows_of(cache.load(key_of(number), fetcher.of(number))) == rows_of(
                entries_like(number)
            )
            clock.advance(61)
    # Two of three stay, instead of each pushing out the next one needed.
    assert fetcher.fetched == [1, 2, 3, 3, 3]
    assert len(cached_files(tmp_path)) == 2


def test_a_blob_larger_than_the_cache_is_not_cached_and_evicts_nothing(
    tmp_path: Path,
) -> None:
    clock, fetcher = noon(), Fetcher()
    RunCache(tmp_path, SPACE, clock=clock).load(key_of(1), fetcher.of(1))
    clock.advance(60 * 60)
    small = RunCache(tmp_path, SIZE - 5000, clock=clock)
    assert rows_of(small.load(key_of(2), fetcher.of(2))) == rows_of(entries_like(2))
    assert [path.name for path in cached_files(tmp_path)] == [key_of(1).file_name]


def test_entries_stay_readable_after_their_file_was_removed(tmp_path: Path) -> None:
    found = RunCache(tmp_path, SPACE).load(key_of(1), Fetcher().of(1))
    for path in cached_files(tmp_path):
        path.unlink()
    assert rows_of(found) == rows_of(entries_like(1))


def test_left_overs_of_a_process_that_died_are_removed_in_time(tmp_path: Path) -> None:
    clock = noon()
    old, fresh, foreign = (tmp_path / name for name in ("a.unfinished", "b.unfinished", "notes"))
    for path, age in ((old, 2 * 60 * 60), (fresh, 60), (foreign, 2 * 60 * 60)):
        path.touch()
        written = (clock.now() - timedelta(seconds=age)).timestamp()
        os.utime(path, (written, written))
    RunCache(tmp_path, SPACE, clock=clock).load(key_of(1), Fetcher().of(1))
    assert [path.exists() for path in (old, fresh, foreign)] == [False, True, True]


def open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def test_mappings_keep_no_file_open_and_are_closed_when_unused(tmp_path: Path) -> None:
    clock, fetcher = noon(), Fetcher()
    cache = RunCache(tmp_path, SPACE, clock=clock)
    before = open_files()
    for number in range(50):
        cache.load(key_of(number), fetcher.of(number))
    assert open_files() <= before + 2
    clock.advance(60 * 60)
    cache.load(key_of(50), fetcher.of(50))
    assert list(cache._open) == [key_of(50)]


# Without a cache.


@pytest.mark.parametrize("folder", ["/dev/null/cache", "file/cache", "file"])
def test_a_folder_that_cannot_be_written_costs_only_time(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").touch()
    fetcher = Fetcher()
    cache = RunCache(tmp_path / folder, SPACE)
    for _ in range(2):
        assert rows_of(cache.load(key_of(1), fetcher.of(1))) == rows_of(entries_like(1))
    assert fetcher.fetched == [1, 1]


@pytest.mark.fault("O2")
def test_a_full_disk_costs_only_time(tmp_path: Path) -> None:
    # No file may grow beyond a page, which simulates a full disk for one process.
    script = """
import resource, signal, sys
from pathlib import Path
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
from frazil.mirror.index.run_cache import RunCache
from tests.unit.codec.key_index.index_rows import rows_of
from tests.unit.mirror.cached_entries import SPACE, Fetcher, entries_like, key_of
found = RunCache(Path(sys.argv[1]), SPACE).load(key_of(1), Fetcher().of(1))
assert rows_of(found) == rows_of(entries_like(1))
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, timeout=60, cwd=ROOT)
    assert cached_files(tmp_path) == []


def test_processes_that_fill_the_same_cache_do_not_disturb_each_other(tmp_path: Path) -> None:
    script = """
import sys
from pathlib import Path
from frazil.mirror.index.run_cache import RunCache
from tests.unit.codec.key_index.index_rows import rows_of
from tests.unit.mirror.cached_entries import SIZE, Fetcher, entries_like, key_of
fetcher = Fetcher()
for turn in range(6):
    # Each turn with its own mappings, in a cache that is too small for all.
    cache = RunCache(Path(sys.argv[1]), 6 * SIZE)
    for number in range(8):
        assert rows_of(cache.load(key_of(number), fetcher.of(number))) == rows_of(
            entries_like(number)
        )
print(len(fetcher.fetched))
"""
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for _ in range(2)
    ]
    fetched = [int(worker.communicate(timeout=60)[0]) for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0]
    # Eight each, and the two for which there is no space in each of the other turns.
    assert all(count <= 8 + 5 * 4 for count in fetched)
    assert all(path.name.endswith(".entries1") for path in cached_files(tmp_path))


def test_tasks_of_one_process_share_what_is_mapped(tmp_path: Path) -> None:
    first = shared_run_cache(str(tmp_path), SPACE)
    assert shared_run_cache(str(tmp_path), SPACE) is first
    found = first.load(key_of(1), Fetcher().of(1))
    assert shared_run_cache(str(tmp_path), SPACE).find(key_of(1)) is found
