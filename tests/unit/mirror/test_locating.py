from __future__ import annotations

import pickle
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.codec.key_index.entries import Entries
from frazil.codec.key_index.run import encode_run
from frazil.errors import DamagedIndexError, StorageError
from frazil.mirror.index.locating import KeyLocator, LocatedRows, TaskIndex
from frazil.model.key_index import TOMBSTONE
from tests.support.sampling import examples
from tests.unit.codec.key_index.index_rows import entries_of
from tests.unit.mirror.index_files import (
    data_file,
    position_deletes,
    put,
    run_locations,
    vectors,
    write_run,
)

if TYPE_CHECKING:
    from frazil.model.key_index import IndexedFile, IndexRun

HALVES = st.sampled_from([0, 1, 2**62 + 5, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1])
KEY = st.tuples(HALVES, st.sampled_from([0, 1, 2**63, 2**64 - 1]))
ROW = st.tuples(KEY, st.integers(0, 4), st.integers(0, 9))
SPACE = 1 << 30


def task_index(
    folder: Path,
    *,
    runs: tuple[IndexRun, ...] = (),
    young: Entries | None = None,
    files: tuple[IndexedFile, ...] = (),
    cache: str = "cache",
) -> TaskIndex:
    return TaskIndex(
        runs=runs,
        young=None if young is None else encode_run(young.sorted()),
        files=files,
        io_properties=(),
        cache_dir=str(folder / cache),
        cache_bytes=SPACE,
    )


def requested(keys: list[tuple[int, int]]) -> tuple[Any, Any]:
    hi, lo = zip(*sorted(keys), strict=True) if keys else ((), ())
    return np.array(hi, np.uint64), np.array(lo, np.uint64)


def row_positions(
    found: LocatedRows, keys: list[tuple[int, int]]
) -> dict[tuple[int, int], set[Any]]:
    """What was found, by key; every row is there once."""
    assert (np.diff(found.key) >= 0).all()
    rows = list(zip(found.key.tolist(), found.file.tolist(), found.position.tolist(), strict=True))
    assert len(rows) == len(set(rows))
    result: dict[tuple[int, int], set[Any]] = {}
    for number, file, position in rows:
        result.setdefault(sorted(keys)[number], set()).add((file, position))
    return result


@dataclass(frozen=True)
class Scene:
    """Runs as lists of rows, what is deleted, and which keys are located."""

    runs: list[tuple[int, list[tuple[tuple[int, int], int, int]]]]
    young: list[tuple[tuple[int, int], int, int]]
    dead: dict[int, set[int]]
    keys: list[tuple[int, int]]


SCENES = st.builds(
    Scene,
    runs=st.lists(st.tuples(st.integers(0, 3), st.lists(ROW, max_size=25)), max_size=3),
    young=st.lists(ROW, max_size=10),
    # The files zero to three are in the table; of the fourth only the index knows.
    dead=st.fixed_dictionaries({at: st.sets(st.integers(0, 9)) for at in range(3)}),
    keys=st.lists(KEY, unique=True, max_size=12),
)


def entries_from(rows: list[tuple[tuple[int, int], int, int]], *, lower: bool) -> Entries:
    entries = entries_of([(hi, lo, file, at) for (hi, lo), file, at in rows])
    return entries if lower else Entries(entries.hi, None, entries.file, entries.position)


def files_of(folder: Path, dead: dict[int, set[int]]) -> tuple[IndexedFile, ...]:
    names = {data_file(at).location: sorted(rows) for at, rows in dead.items() if rows}
    pointers = vectors(folder, names)
    files = [data_file(at, rows=10) for at in range(4)]
    return tuple(
        replace(each, deletes=(pointers[each.location],)) if each.location in pointers else each
        for each in files
    )


@pytest.mark.parametrize("lower", [True, False], ids=["both halves", "upper half"])
@given(scene=SCENES)
@examples(40)
def test_every_live_row_of_every_key_is_found(scene: Scene, *, lower: bool) -> None:
    def halved(key: tuple[int, int]) -> tuple[int, int]:
        return key if lower else (key[0], 0)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        index = task_index(
            folder,
            runs=tuple(
                write_run(folder, entries_from(rows, lower=lower), bits=bits)
                for bits, rows in scene.runs
            ),
            young=entries_from(scene.young, lower=lower),
            files=files_of(folder, scene.dead),
        )
        keys = sorted({halved(key) for key in scene.keys})
        found = [KeyLocator(index).locate(*requested(keys)) for _ in range(2)]
    known = [row for _, rows in scene.runs for row in rows] + scene.young
    expected: dict[tuple[int, int], set[Any]] = {}
    for key, file, position in known:
        if halved(key) in keys and file < 4 and position not in scene.dead.get(file, ()):
            expected.setdefault(halved(key), set()).add((file, position))
    # Cold and warm.
    assert [row_positions(each, keys) for each in found] == [expected] * 2


def test_a_key_with_a_lower_half_is_not_found_where_there_are_none(tmp_path: Path) -> None:
    young = entries_from([((5, 0), 0, 1)], lower=False)
    locator = KeyLocator(task_index(tmp_path, young=young, files=(data_file(0),)))
    keys = [(5, 0), (5, 1)]
    assert row_positions(locator.locate(*requested(keys)), keys) == {(5, 0): {(0, 1)}}


@pytest.mark.fault("T5")
def test_many_uuids_with_one_upper_half_are_distinguished(tmp_path: Path) -> None:
    count = 50_000
    lower = np.arange(count, dtype=np.uint64) * np.uint64(3)
    entries = Entries(
        np.full(count, 7, np.uint64), lower, np.zeros(count, np.int32), np.arange(count)
    )
    index = task_index(
        tmp_path, runs=(write_run(tmp_path, entries),), files=(data_file(0, rows=count),)
    )
    found = KeyLocator(index).locate(np.full(count, 7, np.uint64), lower + np.uint64(1))
    assert len(found.key) == 0
    found = KeyLocator(index).locate(np.full(count, 7, np.uint64), lower)
    assert (found.position == np.arange(count)).all()


def test_an_index_without_entries_finds_nothing(tmp_path: Path) -> None:
    found = KeyLocator(task_index(tmp_path)).locate(*requested([(1, 2)]))
    assert (len(found.key), found.sequence, found.tombstone_sequence) == (0, None, None)
    index = task_index(tmp_path, young=entries_from([((1, 2), 0, 0)], lower=True))
    assert len(KeyLocator(index).locate(*requested([])).key) == 0


def test_signed_hashes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="unsigned"):
        KeyLocator(task_index(tmp_path)).locate(np.zeros(1, np.int64), np.zeros(1, np.uint64))


def test_a_task_index_is_picklable_and_hides_its_credentials(tmp_path: Path) -> None:
    young = entries_from([((5, 0), 0, 1)], lower=False)
    index = replace(
        task_index(tmp_path, young=young), io_properties=(("s3.secret-access-key", "hush"),)
    )
    assert pickle.loads(pickle.dumps(index)) == index
    assert "hush" not in repr(index)


# Sequences and tombstones.


def with_sequences(rows: list[tuple[int, int, int, Any]]) -> Entries:
    key, file, position, sequence = zip(*rows, strict=True)
    return Entries(
        np.array(key, np.uint64),
        None,
        np.array(file, np.int32),
        np.array(position, np.int64),
        pa.array(sequence, pa.string()),
        np.where(np.array(file) == TOMBSTONE, 1000, 0),
    )


def test_rows_come_with_their_sequence_and_keys_with_their_newest_tombstone(
    tmp_path: Path,
) -> None:
    runs = tuple(
        write_run(tmp_path, with_sequences(rows), bits=1)
        for rows in (
            [(1, 0, 0, "a"), (2, TOMBSTONE, -1, "c"), (2**63, TOMBSTONE, -1, "x")],
            [(1, 0, 1, "d"), (2, TOMBSTONE, -1, "e"), (2, 0, 2, "d"), (2, TOMBSTONE, -1, "a")],
        )
    )
    index = task_index(
        tmp_path,
        runs=runs,
        young=with_sequences([(1, TOMBSTONE, -1, "b"), (3, 0, 3, None)]),
        files=files_of(tmp_path, {0: {0}}),
    )
    keys = [(1, 0), (2, 0), (3, 0), (4, 0), (2**63, 0)]
    found = KeyLocator(index).locate(*requested(keys))
    assert row_positions(found, keys) == {(1, 0): {(0, 1)}, (2, 0): {(0, 2)}, (3, 0): {(0, 3)}}
    assert found.sequence is not None
    assert found.sequence.to_pylist() == ["d", "d", None]
    assert found.tombstone_sequence is not None
    assert found.tombstone_key.tolist() == [0, 1, 4]
    assert found.tombstone_sequence.to_pylist() == ["b", "e", "x"]
    some = found.of_keys(np.array([False, True, True, True, False]))
    assert (some.key.tolist(), some.tombstone_key.tolist()) == ([1, 2], [1])
    assert some.sequence is not None
    assert some.tombstone_sequence is not None
    assert some.sequence.to_pylist() == ["d", None]
    assert some.tombstone_sequence.to_pylist() == ["e"]


def test_what_is_found_without_sequences_is_chosen_by_key_too() -> None:
    found = LocatedRows(np.array([0, 1, 1]), np.array([5, 6, 7], np.int32), np.array([1, 2, 3]))
    some = found.of_keys(np.array([False, True]))
    assert (some.file.tolist(), some.sequence) == ([6, 7], None)


def test_runs_that_disagree_about_sequences_are_damage(tmp_path: Path) -> None:
    run = write_run(tmp_path, entries_from([((1, 0), 0, 0)], lower=False))
    index = task_index(
        tmp_path,
        runs=(run,),
        young=with_sequences([(1, 0, 1, "a")]),
        files=(data_file(0),),
    )
    with pytest.raises(DamagedIndexError, match="in all runs or in none"):
        KeyLocator(index).locate(*requested([(1, 0)]))


# Few keys and many.

LARGE = 20 * 16_384


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Entries, IndexRun]:
    """A run of twenty row groups in one blob."""
    folder = tmp_path_factory.mktemp("large")
    numbers = np.random.default_rng(5)
    entries = Entries(
        numbers.integers(0, 2**64, LARGE, np.uint64),
        None,
        np.zeros(LARGE, np.int32),
        numbers.permutation(LARGE),
    ).sorted()
    return folder, entries, write_run(folder, entries)


def keys_at(entries: Entries, at: list[int]) -> tuple[Any, Any]:
    return entries.hi[at], np.zeros(len(at), np.uint64)


FEW, MANY = [70_000], list(range(0, LARGE, 1000))


@pytest.mark.parametrize(("wanted", "cached"), [(FEW, 0), (MANY, 1)], ids=["few", "many"])
def test_a_cold_blob_is_cached_only_when_many_keys_are_located(
    large: tuple[Path, Entries, IndexRun], tmp_path: Path, wanted: list[int], cached: int
) -> None:
    _, entries, run = large
    index = task_index(tmp_path, runs=(run,), files=(data_file(0, rows=LARGE),))
    found = KeyLocator(index).locate(*keys_at(entries, wanted))
    assert found.position.tolist() == entries.position[wanted].tolist()
    folder = Path(index.cache_dir)
    assert (len(list(folder.iterdir())) if folder.exists() else 0) == cached


def test_a_warm_blob_is_not_fetched_again(
    large: tuple[Path, Entries, IndexRun], tmp_path: Path
) -> None:
    _, entries, run = large
    ours = replace(run.parts[0], location=put(tmp_path, Path(run.parts[0].location).read_bytes()))
    index = task_index(
        tmp_path, runs=(replace(run, parts=(ours,)),), files=(data_file(0, rows=LARGE),)
    )
    KeyLocator(index).locate(*keys_at(entries, MANY))
    Path(ours.location).unlink()
    for wanted in (FEW, MANY):
        found = KeyLocator(index).locate(*keys_at(entries, wanted))
        assert found.position.tolist() == entries.position[wanted].tolist()


def test_without_a_cache_the_answer_is_the_same(large: tuple[Path, Entries, IndexRun]) -> None:
    folder, entries, run = large
    index = replace(
        task_index(folder, runs=(run,), files=(data_file(0, rows=LARGE),)), cache_dir="/dev/null/x"
    )
    for wanted in (FEW, MANY):
        found = KeyLocator(index).locate(*keys_at(entries, wanted))
        assert found.position.tolist() == entries.position[wanted].tolist()


# Damage.


@pytest.mark.parametrize("wanted", [FEW, MANY], ids=["few", "many"])
@pytest.mark.parametrize(
    "damage", ["gone", "cut", "empty", "checksum", "entries", "bucket", "offset", "length"]
)
def test_a_damaged_part_is_named_and_not_used(
    large: tuple[Path, Entries, IndexRun], tmp_path: Path, damage: str, wanted: list[int]
) -> None:
    _, entries, run = large
    data = Path(run.parts[0].location).read_bytes()
    blob = run.parts[0].blobs[0]
    bits = 0
    match damage:
        case "cut":
            data = data[: blob.offset + blob.length - 3]
        case "empty":
            data = b""
        case "checksum":
            blob = replace(blob, checksum=blob.checksum ^ 1)
        case "entries":
            blob = replace(blob, entries=blob.entries + 1)
        case "bucket":
            # One of two, while the run has both.
            blob, bits = replace(blob, bucket=int(entries.hi[wanted[0]] >> np.uint64(63))), 1
        case "offset":
            blob = replace(blob, offset=blob.offset + 1)
        case _:
            blob = replace(blob, length=blob.length - 1)
    location = put(tmp_path, data)
    if damage == "gone":
        Path(location).unlink()
    part = replace(run.parts[0], location=location, blobs=(blob,))
    index = task_index(
        tmp_path,
        runs=(replace(run, bits=bits, parts=(part,)),),
        files=(data_file(0, rows=LARGE),),
    )
    with pytest.raises(DamagedIndexError) as failure:
        KeyLocator(index).locate(*keys_at(entries, wanted))
    assert location in failure.value.message
    assert failure.value.next_step is not None


def test_a_bucket_that_the_run_cannot_have_is_damage(tmp_path: Path) -> None:
    run = write_run(tmp_path, entries_from([((1, 0), 0, 0)], lower=False))
    blob = replace(run.parts[0].blobs[0], bucket=1)
    index = task_index(
        tmp_path, runs=(replace(run, parts=(replace(run.parts[0], blobs=(blob,)),)),)
    )
    with pytest.raises(DamagedIndexError, match="a bucket of the run"):
        KeyLocator(index).locate(*requested([(1, 0)]))


@pytest.mark.parametrize("wanted", [FEW, MANY], ids=["few", "many"])
def test_flipped_bits_give_the_right_answer_or_none(
    large: tuple[Path, Entries, IndexRun], tmp_path: Path, wanted: list[int]
) -> None:
    _, entries, run = large
    data = Path(run.parts[0].location).read_bytes()
    blob = run.parts[0].blobs[0]
    numbers = np.random.default_rng(3)
    # Anywhere, and in what describes the rest.
    spots = [*numbers.integers(0, len(data), 10), *range(blob.length - 2000, blob.length, 211)]
    refused = 0
    for spot in spots:
        flipped = bytearray(data)
        flipped[int(spot)] ^= 1 << int(numbers.integers(8))
        part = replace(run.parts[0], location=put(tmp_path, bytes(flipped)))
        index = task_index(
            tmp_path,
            runs=(replace(run, parts=(part,)),),
            files=(data_file(0, rows=LARGE),),
        )
        try:
            found = KeyLocator(index).locate(*keys_at(entries, wanted))
        except DamagedIndexError:
            refused += 1
        else:
            assert found.position.tolist() == entries.position[wanted].tolist()
    assert refused >= 8


def test_a_damaged_young_run_is_damage(tmp_path: Path) -> None:
    index = task_index(tmp_path, young=entries_from([((1, 0), 0, 0)], lower=False))
    assert index.young is not None
    with pytest.raises(DamagedIndexError, match="young run"):
        KeyLocator(replace(index, young=index.young[:-9]))


def test_deletes_that_are_lost_are_named(tmp_path: Path) -> None:
    pointer = position_deletes(tmp_path, data_file(0).location, [1])
    Path(pointer.location).unlink()
    young = entries_from([((1, 0), 0, 0)], lower=False)
    index = task_index(tmp_path, young=young, files=(data_file(0, pointer),))
    with pytest.raises(DamagedIndexError) as failure:
        KeyLocator(index).locate(*requested([(1, 0)]))
    assert pointer.location in failure.value.message
    # Other keys do not need them.
    assert len(KeyLocator(index).locate(*requested([(2, 0)])).key) == 0


def test_an_unavailable_store_is_not_damage(tmp_path: Path) -> None:
    run = write_run(tmp_path, entries_from([((1, 0), 0, 0)], lower=False))
    index = task_index(
        tmp_path, runs=(replace(run, parts=(replace(run.parts[0], location=str(tmp_path)),)),)
    )
    assert run_locations(index) == [str(tmp_path)]
    with pytest.raises(StorageError):
        KeyLocator(index).locate(*requested([(1, 0)]))
