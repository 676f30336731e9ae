"""Indexes that are not what they should be: each costs a repair, and never a row."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from frazil.clients.iceberg.file_system import InputFiles
from frazil.codec.deletes.deletion_vector import DeletionVector, deletion_vector_puffin
from frazil.codec.deletes.position_deletes import encode_position_deletes
from frazil.codec.key_index import manifest as index_manifest
from frazil.codec.key_index.head import read_head, write_head
from frazil.merge.planning.settings import IndexSettings
from frazil.mirror.deleted_rows import load_deleted
from frazil.mirror.index.loading import HEAD_PROPERTY
from frazil.model.key_index import IndexKey, KeyHash, RepairReason
from frazil.model.schema.types import Primitive
from tests.support.lake.mirrored import Mirrored, attach_files, local_path
from tests.support.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.clients.iceberg.lake import Lake
    from frazil.merge.report import MergeReport
    from frazil.model.key_index import DeletePointer, IndexedFile, IndexManifest, IndexRun, Repair

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trust")


@pytest.fixture(scope="module")
def lake(spark: SparkSession, folder: Path) -> Lake:
    return attach_files(spark, folder)


def grown(spark: SparkSession, lake: Lake, folder: Path, version: int) -> Mirrored:
    """A mirror with several files, deletes in some of them, runs and young entries."""
    index = IndexSettings(cache_dir=folder / f"cache{version}", young_entries=8, max_runs=3)
    table = Mirrored.create(spark, lake, format_version=version, index=index)
    table.change_and_merge(dict.fromkeys(range(1, 13), "first"))
    table.change_and_merge({1: "second", 2: None, 13: "new", 14: "new", 15: "new", 16: "new"})
    table.change_and_merge({3: "third", 13: None, 17: "new"})
    return table


@pytest.fixture(scope="module")
def shared(spark: SparkSession, lake: Lake, folder: Path) -> Mirrored:
    """One mirror for all: whatever is done to its index, the next merge puts it right."""
    table = grown(spark, lake, folder, 3)
    manifest = table.manifest()
    assert manifest.runs
    assert manifest.young_entries
    assert sum(bool(each.deletes) for each in manifest.files) == 2
    return table


def touch_everything(table: Mirrored) -> MergeReport:
    """A merge that meets old files and new ones, runs and young entries."""
    oldest, newest = min(table.expected), max(table.expected)
    changes = {oldest: f"at {table.at}", newest: None, newest + 1: "new", newest + 2: "new"}
    return table.change_and_merge(changes)


def only_repair(report: MergeReport) -> Repair:
    (commit,) = report.commits
    (repair,) = commit.repairs
    return repair


@contextmanager
def rewriting(table: Mirrored) -> Iterator[list[IndexManifest]]:
    """Rewrites the head, complete and with right checksums, but with another manifest."""
    path = table.index_head()
    manifest, young = read_head(path.read_bytes())
    holder = [manifest]
    yield holder
    path.write_bytes(write_head(holder[0], young).data)


def rewritten(change: Callable[[IndexManifest], IndexManifest]) -> Callable[[Mirrored], None]:
    def spoil(table: Mirrored) -> None:
        with rewriting(table) as holder:
            holder[0] = change(holder[0])

    return spoil


def holding(change: Callable[[bytes], bytes]) -> Callable[[Mirrored], None]:
    def spoil(table: Mirrored) -> None:
        path = table.index_head()
        path.write_bytes(change(path.read_bytes()))

    return spoil


def elsewhere(runs: tuple[IndexRun, ...]) -> tuple[IndexRun, ...]:
    """The same runs, said to lie in a folder of the machine."""
    return tuple(
        replace(
            run, parts=tuple(replace(part, location="file:///etc/hostname") for part in run.parts)
        )
        for run in runs
    )


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]


def with_first_file(manifest: IndexManifest, **changes: object) -> IndexManifest:
    first, *rest = manifest.files
    return replace(manifest, files=(replace(first, **changes), *rest))  # type: ignore[arg-type]


def missing(table: Mirrored) -> None:
    table.index_head().unlink()


def of_the_parent(table: Mirrored) -> None:
    # The parent's own head may be one that was spoilt before.
    touch_everything(table)
    shutil.copyfile(table.index_head_of_parent(), table.index_head())


def of_a_later_version(table: Mirrored) -> None:
    with pytest.MonkeyPatch.context() as patch, rewriting(table):
        patch.setattr(index_manifest, "VERSION", 2)


OTHER_KEY = IndexKey(field_ids=(2,), types=(Primitive.STRING,), hash=KeyHash.SHA256)
DAMAGED = RepairReason.DAMAGED

# What is done to the head, the reason and detail of the repair, and whether everything is read.
HEADS = {
    "missing": (missing, RepairReason.MISSING, "is missing", True),
    "empty": (holding(lambda _: b""), DAMAGED, "bytes", True),
    "truncated": (holding(lambda data: data[: len(data) // 2]), DAMAGED, "expected", True),
    "without its magic": (holding(lambda data: b"PAR1" + data[4:]), DAMAGED, "expected", True),
    "damaged in the manifest": (holding(lambda data: flipped(data, 40)), DAMAGED, "", True),
    "damaged in the footer": (holding(lambda d: flipped(d, len(d) - 40)), DAMAGED, "", True),
    "of an unknown version": (of_a_later_version, DAMAGED, "found version 2", True),
    "of another table": (
        rewritten(lambda old: replace(old, table_uuid=str(uuid4()))),
        DAMAGED,
        "for another table or snapshot",
        True,
    ),
    "of an older snapshot": (of_the_parent, DAMAGED, "for another table or snapshot", True),
    "of a newer snapshot": (
        rewritten(lambda old: replace(old, snapshot_id=old.snapshot_id + 1)),
        DAMAGED,
        "for another table or snapshot",
        True,
    ),
    "of another key": (
        rewritten(lambda old: replace(old, key=OTHER_KEY)),
        RepairReason.OTHER_KEY,
        "the key columns have changed",
        True,
    ),
    "with its numbers used up": (
        rewritten(lambda old: replace(old, next_ordinal=2**31 - 1)),
        DAMAGED,
        "nearly exhausted",
        True,
    ),
    "without one of the files": (
        rewritten(lambda old: replace(old, files=old.files[1:])),
        DAMAGED,
        "data files of",
        False,
    ),
    "without one of the deletes": (
        rewritten(lambda old: with_first_file(old, deletes=())),
        DAMAGED,
        "delete files of",
        False,
    ),
    "that is implausibly large": (
        lambda table: os.truncate(table.index_head(), 2 << 30),
        DAMAGED,
        "expected at most 1073741824 bytes, found 2147483648",
        True,
    ),
    "with runs elsewhere": (
        rewritten(lambda old: replace(old, runs=elsewhere(old.runs))),
        DAMAGED,
        "names runs outside of the table",
        True,
    ),
    "with a file elsewhere": (
        rewritten(lambda old: with_first_file(old, location="file:///etc/hostname", deletes=())),
        DAMAGED,
        "names files outside of the table",
        False,
    ),
    "with a file by a way out of the table": (
        rewritten(
            lambda old: with_first_file(
                old,
                location=f"{old.files[0].location.rpartition('/')[0]}/../../../x.parquet",
                deletes=(),
            )
        ),
        DAMAGED,
        "names files outside of the table",
        False,
    ),
    "with a wrong number of rows": (
        rewritten(lambda old: with_first_file(old, rows=old.files[0].rows - 1)),
        DAMAGED,
        "records of",
        False,
    ),
}


# The bytes of a head are those of test_codec_index_head, what it says about its table that of
# test_index_loading; each way to find out that it cannot be trusted is here once.
CI_HEADS = {
    "missing",
    "truncated",
    "of an older snapshot",
    "of another key",
    "with its numbers used up",
    "without one of the files",
    "that is implausibly large",
    "with runs elsewhere",
    "with a file by a way out of the table",
}


@pytest.mark.fault("N51", "X1")
@pytest.mark.parametrize("spoilt", sampled(HEADS, ci=CI_HEADS))
def test_a_head_that_cannot_be_trusted_is_repaired_and_the_report_says_why(
    shared: Mirrored, spoilt: str
) -> None:
    spoil, reason, detail, rebuilt = HEADS[spoilt]
    spoil(shared)
    repair = only_repair(touch_everything(shared))
    assert (repair.reason, repair.rebuilt) == (reason, rebuilt)
    assert detail in repair.detail
    assert shared.manifest().next_ordinal < 2**20
    shared.check()


@pytest.mark.fault("N51")
def test_a_head_outside_of_the_table_is_not_read(shared: Mirrored, folder: Path) -> None:
    touch_everything(shared)
    # A right one, byte for byte, outside of the table.
    stolen = folder / "stolen.stats"
    stolen.write_bytes(shared.index_head().read_bytes())
    theirs = shared.mirror.table._table.newAppend()
    theirs.set(HEAD_PROPERTY, f"file://{stolen}").commit()
    repair = only_repair(touch_everything(shared))
    assert (repair.reason, repair.rebuilt) == (DAMAGED, True)
    assert "names a head outside of the table" in repair.detail
    shared.check()


def cold(table: Mirrored, folder: Path) -> None:
    """Nothing of the index is cached any more."""
    index = replace(table.settings.index, cache_dir=folder / f"cache-{uuid4().hex[:8]}")
    table.settings = replace(table.settings, index=index)


def part_of_a_run(table: Mirrored) -> Path:
    return local_path(table.manifest().runs[0].parts[0].location)


RUNS = {
    "missing": lambda path: path.unlink(),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:60]),
    "damaged": lambda path: path.write_bytes(flipped(path.read_bytes(), 60)),
    "another file": lambda path: path.write_bytes(bytes(path.stat().st_size)),
}


@pytest.mark.fault("X1")
@pytest.mark.parametrize("spoilt", sampled(RUNS, ci={"missing", "damaged"}))
def test_a_run_that_cannot_be_used_has_the_index_rebuilt_within_the_same_merge(
    shared: Mirrored, folder: Path, spoilt: str
) -> None:
    while not shared.manifest().runs:
        touch_everything(shared)
    path = part_of_a_run(shared)
    RUNS[spoilt](path)
    cold(shared, folder)
    repair = only_repair(touch_everything(shared))
    assert (repair.reason, repair.rebuilt) == (DAMAGED, True)
    assert path.name in repair.detail
    shared.check()


@pytest.mark.fault("X1")
def test_damaged_or_foreign_files_in_the_cache_are_fetched_again(
    shared: Mirrored, folder: Path
) -> None:
    while not shared.manifest().runs:
        touch_everything(shared)
    cold(shared, folder)
    touch_everything(shared)
    # A copy, because the workers have the files of the first directory open.
    warm = shared.settings.index.cache_dir
    cold(shared, folder)
    spoilt = shared.settings.index.cache_dir
    shutil.copytree(warm, spoilt)
    first, *others = sorted(spoilt.glob("*.entries1"))
    first.write_bytes(flipped(first.read_bytes(), first.stat().st_size // 2))
    for each in others:
        each.write_bytes(b"")
    assert touch_everything(shared).repairs == ()
    shared.check()


def test_without_a_directory_for_the_cache_merges_go_on(shared: Mirrored, folder: Path) -> None:
    cold(shared, folder)
    shared.settings.index.cache_dir.write_text("not a directory")
    assert touch_everything(shared).repairs == ()
    shared.check()


@pytest.fixture(scope="module", params=[3, 2], ids=["deletion vectors", "position deletes"])
def of_version(
    request: pytest.FixtureRequest, spark: SparkSession, lake: Lake, folder: Path, shared: Mirrored
) -> Mirrored:
    return shared if request.param == 3 else grown(spark, lake, folder, request.param)


def with_deletes(table: Mirrored) -> list[tuple[IndexedFile, list[int], list[int]]]:
    """The files with deletes, each with its dead rows and its live ones."""
    found = []
    for file in table.manifest().files:
        dead = load_deleted(file, InputFiles({})).positions().tolist()
        live = [row for row in range(file.rows) if row not in dead]
        if dead:
            found.append((file, dead, live))
    return found


def key_at(table: Mirrored, file: IndexedFile, row: int) -> int:
    name = file.location.rpartition("/")[2]
    query = f"select id from {{mirror}} where _file like '%{name}' and _pos = {row}"
    ((key,),) = table.sql(query)
    return int(str(key))


def other_deletes(file: IndexedFile, rows: list[int]) -> DeletePointer:
    """Deletes of the same file that never were in the table."""
    (pointer,) = file.deletes
    vector = DeletionVector.from_positions(rows)
    location = f"{pointer.location.rpartition('/')[0]}/{uuid4()}"
    other = replace(pointer, location=location, rows=len(rows))
    if pointer.offset is None:
        data: bytes | memoryview = encode_position_deletes(file.location, vector)
    else:
        puffin = deletion_vector_puffin({file.location: vector})
        data, (blob,) = puffin.data, puffin.blobs
        other = replace(other, offset=blob.offset, length=blob.length)
    local_path(location).write_bytes(data)
    return replace(other, file_size=len(data))


def point(table: Mirrored, pointers: dict[str, DeletePointer]) -> None:
    """Let the head say that these are the deletes of these files."""

    def pointed(file: IndexedFile) -> IndexedFile:
        if file.location not in pointers:
            return file
        pointer = replace(pointers[file.location], data_file=file.location)
        return replace(file, deletes=(pointer,))

    with rewriting(table) as holder:
        holder[0] = replace(holder[0], files=tuple(map(pointed, holder[0].files)))


@pytest.mark.fault("X8", "N16")
def test_deletes_that_the_table_does_not_have_are_refused_by_the_commit_and_repaired(
    of_version: Mirrored,
) -> None:
    table = of_version
    file, dead, live = next(each for each in with_deletes(table) if len(each[2]) > len(each[1]))
    # As many rows, but others: only the commit detects it.
    point(table, {file.location: other_deletes(file, live[: len(dead)])})
    repair = only_repair(table.change_and_merge({key_at(table, file, live[-1]): "found"}))
    assert (repair.reason, repair.rebuilt) == (DAMAGED, True)
    assert repair.detail == "files of the plan are not in the table."
    table.check()


@pytest.mark.fault("N16")
def test_deletes_of_another_number_of_rows_are_seen_before_anything_is_merged(
    of_version: Mirrored,
) -> None:
    table = of_version
    file, dead, live = next(each for each in with_deletes(table) if len(each[2]) > 1)
    point(table, {file.location: other_deletes(file, [*dead, live[0]])})
    repair = only_repair(table.change_and_merge({key_at(table, file, live[0]): "found"}))
    assert (repair.reason, repair.rebuilt, repair.files_read) == (DAMAGED, False, 0)
    assert "position deletes of" in repair.detail
    table.check()


@pytest.mark.fault("N16")
def test_the_deletes_of_another_file_are_not_taken_for_those_of_this_one(
    of_version: Mirrored,
) -> None:
    table = of_version
    (one, _, live), (other, _, _), *_ = with_deletes(table)
    point(table, {one.location: other.deletes[0], other.location: one.deletes[0]})
    repair = only_repair(table.change_and_merge({key_at(table, one, live[0]): "found"}))
    assert (repair.reason, repair.rebuilt) == (DAMAGED, True)
    assert "of the data file" in repair.detail
    table.check()


@pytest.mark.fault("N16")
def test_numbers_of_files_that_vanished_are_never_given_again(of_version: Mirrored) -> None:
    table = of_version
    before = {file.location: file.ordinal for file in table.manifest().files}
    highest = max(before.values())
    table.call("rewrite_data_files", arguments="options => map('rewrite-all', 'true')")
    assert only_repair(touch_everything(table)).reason is RepairReason.FOREIGN_COMMIT
    after = table.manifest().files
    assert not before.keys() & {file.location for file in after}
    assert min(file.ordinal for file in after) > highest
    table.check()
    highest = max(file.ordinal for file in after)
    table.truncate()
    table.change_and_merge({1: "again", 2: "again"})
    assert min(file.ordinal for file in table.manifest().files) > highest
    table.check()
