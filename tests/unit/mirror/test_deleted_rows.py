from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.clients.iceberg.file_system import InputFiles
from frazil.codec.deletes.deletion_vector import DeletionVector
from frazil.errors import DamagedIndexError, StorageError
from frazil.mirror.deleted_rows import (
    LiveRows,
    _Remembered,
    _Wanted,
    is_deleted,
    load_deleted,
    load_many,
)
from tests.support.sampling import examples
from tests.unit.mirror.index_files import data_file, position_deletes, vectors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

INPUTS = InputFiles({})


class CountedFiles(InputFiles):
    """Reads as ever, and counts what was read."""

    def __init__(self) -> None:
        super().__init__({})
        self.ranges_read: list[tuple[int, int]] = []

    @contextmanager
    def ranges(self, location: str) -> Iterator[Callable[[int, int], bytes]]:
        with super().ranges(location) as read:

            def counted(offset: int, length: int) -> bytes:
                self.ranges_read.append((offset, length))
                return read(offset, length)

            yield counted


def positions(vector: DeletionVector) -> list[int]:
    return [int(each) for each in vector.positions()]


def test_a_file_without_deletes_has_none() -> None:
    assert load_deleted(data_file(0), INPUTS).cardinality == 0
    assert load_many([], INPUTS) == []


def test_all_deletes_of_a_file_count(tmp_path: Path) -> None:
    name = data_file(0).location
    vector = vectors(tmp_path, {name: [1, 5]})[name]
    older = [position_deletes(tmp_path, name, each) for each in ([5, 9], [0])]
    assert positions(load_deleted(data_file(0, vector, *older), INPUTS)) == [0, 1, 5, 9]


def test_many_vectors_of_one_file_are_read_at_once(tmp_path: Path) -> None:
    names = [data_file(at).location for at in range(40)]
    pointers = vectors(tmp_path, {name: [at, 900] for at, name in enumerate(names)})
    files = [data_file(at, pointers[name]) for at, name in enumerate(names)]
    inputs = CountedFiles()
    found = load_many(files, inputs)
    assert [positions(vector) for vector in found] == [[at, 900] for at in range(40)]
    assert len(inputs.ranges_read) == 1
    # Files never change: what was decoded once is not read again.
    assert load_many(files[3:5], inputs) == found[3:5]
    assert len(inputs.ranges_read) == 1


def test_vectors_far_apart_are_read_separately(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0)
    long = {f"filler-{at}": numbers.choice(2**22, 200_000).tolist() for at in range(2)}
    pointers = vectors(tmp_path, {"a": [1], **long, "b": [2]})
    files = [replace(data_file(at, pointers[name]), location=name) for at, name in enumerate("ab")]
    inputs = CountedFiles()
    assert [positions(vector) for vector in load_many(files, inputs)] == [[1], [2]]
    # Each with the end of the file, which says whose vector it is.
    assert len(inputs.ranges_read) == 4
    assert sum(length for _, length in inputs.ranges_read) < 2 * 2**13 + 200


def test_deletes_of_a_partition_concern_only_the_files_they_name(tmp_path: Path) -> None:
    pointer = replace(position_deletes(tmp_path, data_file(0).location, [3]), data_file=None)
    found = load_many([data_file(0, pointer), data_file(1, pointer)], INPUTS)
    assert [positions(vector) for vector in found] == [[3], []]


def test_deletes_that_should_name_the_file_and_do_not_are_damage(tmp_path: Path) -> None:
    pointer = position_deletes(tmp_path, "another.parquet", [3])
    with pytest.raises(DamagedIndexError, match="position deletes of the data file"):
        load_deleted(data_file(0, pointer), INPUTS)


@pytest.mark.parametrize("kind", ["vector", "positions"])
@pytest.mark.parametrize("damage", ["gone", "cut", "flipped", "empty", "other count"])
def test_a_damaged_delete_file_is_named(tmp_path: Path, kind: str, damage: str) -> None:
    name = data_file(0).location
    pointer = (
        vectors(tmp_path, {name: [1, 5]})[name]
        if kind == "vector"
        else position_deletes(tmp_path, name, [1, 5])
    )
    path = Path(pointer.location)
    data = bytearray(path.read_bytes())
    match damage:
        case "gone":
            path.unlink()
        case "cut":
            path.write_bytes(data[: (pointer.offset or 0) + 20])
        case "flipped":
            middle = (pointer.offset or 0) + (pointer.length or 80) // 2
            data[middle] ^= 4
            path.write_bytes(data)
        case "empty":
            path.write_bytes(b"")
        case _:
            pointer = replace(pointer, rows=3)
    with pytest.raises(DamagedIndexError) as failure:
        load_deleted(data_file(0, pointer), INPUTS)
    assert pointer.location in failure.value.message
    assert failure.value.next_step is not None


def test_a_vector_without_an_offset_is_damage(tmp_path: Path) -> None:
    name = data_file(0).location
    pointer = replace(vectors(tmp_path, {name: [1]})[name], offset=None)
    with pytest.raises(DamagedIndexError, match="a deletion vector of the data file"):
        load_deleted(data_file(0, pointer), INPUTS)


def test_the_vector_of_another_file_is_damage_even_if_it_counts_as_many_rows(
    tmp_path: Path,
) -> None:
    pointers = vectors(tmp_path, {data_file(0).location: [1], data_file(1).location: [2]})
    wrong = replace(pointers[data_file(1).location], data_file=data_file(0).location)
    with pytest.raises(DamagedIndexError, match="a deletion vector of the data file"):
        load_deleted(data_file(0, wrong), INPUTS)


def test_an_unavailable_store_is_not_damage(tmp_path: Path) -> None:
    # A folder where a file should be: there, but not to be read.
    pointer = replace(
        position_deletes(tmp_path, data_file(0).location, [3]), location=str(tmp_path)
    )
    with pytest.raises(StorageError):
        load_deleted(data_file(0, pointer), INPUTS)


@given(
    st.sets(st.integers(0, 300)),
    st.lists(st.integers(0, 300), max_size=60),
)
@examples(50)
def test_membership_is_that_of_the_set(dead: set[int], requested: list[int]) -> None:
    vector = DeletionVector.from_positions(sorted(dead))
    found = is_deleted(vector, np.array(requested, np.int64))
    assert found.tolist() == [each in dead for each in requested]


def test_live_rows_are_those_of_files_of_the_table_that_are_not_deleted(tmp_path: Path) -> None:
    names = [data_file(at).location for at in (3, 8)]
    pointers = vectors(tmp_path, {names[0]: [1], names[1]: [0, 2]})
    files = [
        data_file(8, pointers[names[1]]),
        data_file(3, pointers[names[0]]),
        data_file(5),
    ]
    live = LiveRows(files, INPUTS)
    requested = [(3, 0), (8, 2), (3, 1), (4, 0), (5, 1), (9, 0), (8, 1), (-1, 0), (3, 1)]
    file, position = np.array(requested).T
    mask = live.mask(file.astype(np.int32), position)
    assert mask.tolist() == [True, False, False, False, True, False, True, False, False]
    assert LiveRows([], INPUTS).mask(file.astype(np.int32), position).any() == np.False_


def test_deletes_of_other_files_are_not_loaded(tmp_path: Path) -> None:
    lost = replace(position_deletes(tmp_path, "x", [3]), location=str(tmp_path / "lost"))
    live = LiveRows([data_file(0, lost), data_file(1)], INPUTS)
    assert live.mask(np.array([1], np.int32), np.array([5])).tolist() == [True]
    with pytest.raises(DamagedIndexError):
        live.mask(np.array([0], np.int32), np.array([5]))


@pytest.mark.parametrize("position", [-1, 1000])
def test_a_row_that_its_file_cannot_have_is_damage(position: int) -> None:
    with pytest.raises(DamagedIndexError, match=r"data-0\.parquet"):
        LiveRows([data_file(0)], INPUTS).mask(np.array([0], np.int32), np.array([position]))


def test_the_cache_of_a_process_is_bounded_and_keeps_the_last_used(tmp_path: Path) -> None:
    wanted = [
        _Wanted(name, replace(pointer, length=40))
        for name, pointer in vectors(tmp_path, {"a": [1], "b": [2], "c": [3]}).items()
    ]
    remembered = _Remembered(100)
    for each in wanted[:2]:
        remembered.keep(each, DeletionVector())
    remembered.keep(wanted[0], DeletionVector())
    assert remembered.find(wanted[0]) is not None
    remembered.keep(wanted[2], DeletionVector())
    assert [remembered.find(each) is not None for each in wanted] == [True, False, True]
