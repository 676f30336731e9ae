"""What every catalog must do, the same way on each."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from pyiceberg.table import StaticTable

from frazil import errors
from frazil.clients.iceberg.commit.strict_commit import (
    CommitOutcome,
    FileChanges,
    StatisticsFile,
    StrictCommit,
)
from frazil.codec.deletes.deletion_vector import (
    DeletionVector,
    FilePartition,
    delete_file_descriptors,
    deletion_vector_puffin,
)
from frazil.codec.deletes.position_deletes import (
    encode_position_deletes,
    position_delete_descriptor,
)
from frazil.codec.puffin import Blob, write_puffin
from frazil.model.marker import Marker, MarkerMove, MarkerRole, SnapshotRef
from frazil.model.schema.types import Field, Primitive, Schema
from tests.support.lake.catalogs import Kind
from tests.support.lake.files import path_of
from tests.support.lake.other_readers import ids_by_duckdb, ids_by_pyiceberg

if TYPE_CHECKING:
    from collections.abc import Callable

    from frazil.clients.iceberg.commit.strict_commit import Receipt
    from frazil.clients.iceberg.table import LakeTable
    from frazil.demo.services import ObjectStore
    from tests.support.lake.catalogs import LakeCase

pytestmark = pytest.mark.spark

# Every kind of catalog and store and every format version, not every combination of them.
PAIRS = [
    (Kind.SQLITE_FILE, 3),
    (Kind.POSTGRES_S3, 2),
    (Kind.REST_S3, 3),
    (Kind.SEAWEED, 3),
]
ALL = [(kind, version) for kind in Kind for version in (2, 3)]
CASES = [
    *(pytest.param(pair, id=f"{pair[0]} v{pair[1]}") for pair in PAIRS),
    *(
        pytest.param(pair, id=f"{pair[0]} v{pair[1]} deep", marks=pytest.mark.deep)
        for pair in ALL
        if pair not in PAIRS
    ),
]


def at(position: int, batch: str | None = None) -> Marker:
    return Marker(
        pipeline="tests", source="numbers", position=str(position), batch=batch or f"b{position}"
    )


def move(start: int | None, goal: int, batch: str | None = None) -> MarkerMove:
    return MarkerMove(MarkerRole.INGEST, None if start is None else str(start), at(goal, batch))


class Written:
    """A table with a commit per list of ids, each in a file of its own."""

    def __init__(self, case: LakeCase, format_version: int) -> None:
        self.case = case
        self.version = format_version
        self.table: LakeTable = case.new_table(format_version)
        self.location = self.table.load_state().location
        self.position: int | None = None
        self.files: list[str] = []

    def commit(self, changes: FileChanges, schema: Schema | None = None) -> Receipt:
        goal = 0 if self.position is None else self.position + 1
        receipt = self.table.commit(
            StrictCommit(move=move(self.position, goal), changes=changes, schema=schema)
        )
        self.position = goal
        return receipt

    def append(self, *ids: int) -> Receipt:
        descriptor = self.case.files.write(self.location, ids, self.case.data_folder())
        self.files.append(descriptor)
        return self.commit(FileChanges(added=(descriptor,)))

    def deletes(self, descriptor: str, positions: list[int]) -> tuple[str, ...]:
        """Delete rows of a file the way its format version does it."""
        path, vector = path_of(descriptor), DeletionVector.from_positions(positions)
        folder = f"{self.location}/{self.case.data_folder()}"
        if self.version == 2:
            location, content = f"{folder}/{uuid4()}.parquet", encode_position_deletes(path, vector)
            self.case.files.put(location, content)
            return (
                position_delete_descriptor(
                    location, content, data_file=path, vector=vector, placement=FilePartition()
                ),
            )
        puffin = deletion_vector_puffin({path: vector})
        location = f"{folder}/{uuid4()}.puffin"
        self.case.files.put(location, puffin.data)
        return delete_file_descriptors(location, puffin, {path: FilePartition()})

    def ids(self) -> list[int]:
        return sorted(row.id for row in self.table.read().select("id").collect())


@pytest.fixture(params=CASES)
def written(request: pytest.FixtureRequest, lake_of: Callable[[Kind], LakeCase]) -> Written:
    kind, version = request.param
    return Written(lake_of(kind), version)


def read_by_others(written: Written, store: ObjectStore) -> list[int]:
    """The same rows by readers that share nothing with Java; they must agree."""
    metadata = written.table.load_metadata_location()
    seen = ids_by_pyiceberg(metadata, store)
    assert ids_by_duckdb(metadata, store) == seen
    return seen


def test_appends_land_with_their_marker_and_are_read_by_others(
    written: Written, object_store: ObjectStore
) -> None:
    first, second = written.append(1, 2), written.append(3)
    assert (first.outcome, second.outcome) == (CommitOutcome.COMMITTED, CommitOutcome.COMMITTED)
    marker = written.table.load_marker(MarkerRole.INGEST)
    assert marker == second.marker
    assert marker is not None
    head = written.table.load_state().head
    assert head is not None
    assert marker.snapshot is not None
    assert (head.id, head.sequence) == (marker.snapshot.id, marker.snapshot.sequence)
    assert head.summary["frazil.batch"] == "b1"
    assert written.ids() == [1, 2, 3]
    assert read_by_others(written, object_store) == [1, 2, 3]


def test_repeating_a_move_is_a_no_op_that_says_so(written: Written) -> None:
    written.append(1)
    before = written.table.load_state()
    again = written.table.append(StrictCommit(move=move(None, 0)))
    assert again.outcome is CommitOutcome.ALREADY_DONE
    assert written.table.load_state() == before


def test_a_move_from_another_position_is_fenced(written: Written) -> None:
    written.append(1)
    written.append(2)
    with pytest.raises(errors.FencedError, match="moved by batch b1 of pipeline tests"):
        written.table.append(StrictCommit(move=move(0, 1, "of another process")))
    assert written.ids() == [1, 2]


def test_a_move_without_rows_commits_an_empty_snapshot(written: Written) -> None:
    written.append(1)
    receipt = written.commit(FileChanges())
    head = written.table.load_state().head
    assert head is not None
    assert receipt.marker.snapshot is not None
    assert head.id == receipt.marker.snapshot.id
    assert head.count("added-data-files") == 0
    assert written.ids() == [1]


def test_rows_are_deleted_and_deletes_replaced_in_one_commit(
    written: Written, object_store: ObjectStore
) -> None:
    written.append(10, 11, 12, 13)
    old = written.deletes(written.files[0], [1])
    written.commit(FileChanges(added_deletes=old))
    assert written.ids() == [10, 12, 13]
    new = written.deletes(written.files[0], [1, 3])
    extra = written.case.files.write(written.location, [99], written.case.data_folder())
    written.commit(FileChanges(added=(extra,), added_deletes=new, removed_deletes=old))
    assert written.ids() == [10, 12, 99]
    assert read_by_others(written, object_store) == [10, 12, 99]
    written.commit(FileChanges(removed=(written.files[0],), removed_deletes=new))
    assert written.ids() == [99]


def test_everything_is_replaced_in_one_commit(written: Written, object_store: ObjectStore) -> None:
    written.append(1, 2)
    written.append(3)
    written.commit(FileChanges(added_deletes=written.deletes(written.files[0], [0])))
    fresh = written.case.files.write(written.location, [7], written.case.data_folder())
    written.commit(FileChanges(added=(fresh,), replaces_everything=True))
    assert written.ids() == [7]
    assert read_by_others(written, object_store) == [7]
    head = written.table.load_state().head
    assert head is not None
    assert head.count("total-delete-files") == 0


def test_a_schema_and_the_rows_that_need_it_land_together(
    written: Written, object_store: ObjectStore
) -> None:
    written.append(1)
    columns = (
        Field(1, "id", Primitive.LONG, required=True),
        Field(3, "added", Primitive.INT),
        Field(2, "renamed", Primitive.STRING),
    )
    descriptor = written.case.files.write(written.location, [2], written.case.data_folder())
    written.commit(FileChanges(added=(descriptor,)), schema=Schema(1, columns, frozenset({1})))
    assert [field.name for field in written.table.load_schema().fields] == [
        "id",
        "added",
        "renamed",
    ]
    rows = written.table.read().orderBy("id").collect()
    assert [(row.id, row.added, row.renamed) for row in rows] == [
        (1, None, "name 1"),
        (2, None, "name 2"),
    ]
    assert read_by_others(written, object_store) == [1, 2]
    newest, older = written.table.load_ancestry()
    assert written.table.read(newest.id).columns == ["id", "added", "renamed"]
    assert written.table.read(older.id).columns == ["id", "name"]


def test_a_statistics_file_that_names_the_snapshot_lands_with_it(
    written: Written, object_store: ObjectStore
) -> None:
    written.append(1)
    named: list[SnapshotRef] = []
    location = f"{written.location}/metadata/{uuid4()}.stats"

    def write_head(snapshot: SnapshotRef) -> StatisticsFile:
        named.append(snapshot)
        puffin = write_puffin([Blob("of-a-test", str(snapshot.id).encode())], {})
        written.case.files.put(location, puffin.data)
        return StatisticsFile(location, len(puffin.data), puffin.footer_size)

    receipt = written.table.commit(StrictCommit(move=move(0, 1), statistics=write_head))
    assert [receipt.marker.snapshot] == named
    metadata = written.table.load_metadata_location()
    # A reader that refuses unknown kinds of statistics still opens the table.
    table = StaticTable.from_metadata(metadata, properties=object_store.io_properties())
    (entry,) = table.metadata.statistics
    assert (entry.snapshot_id, entry.statistics_path) == (named[0].id, location)
    assert read_by_others(written, object_store) == [1]


def test_a_range_holds_what_was_appended_after_one_snapshot_up_to_another(
    written: Written,
) -> None:
    for number in range(4):
        written.append(number)
    line = [snapshot.id for snapshot in reversed(written.table.load_ancestry())]
    between = written.table.read_between(line[0], line[2])
    assert sorted(row.id for row in between.collect()) == [1, 2]
    assert written.table.read_between(line[3], line[3]).count() == 0
    everything = written.table.read_between(None, line[2])
    assert sorted(row.id for row in everything.collect()) == [0, 1, 2]


def test_a_range_with_removed_rows_is_refused_by_its_snapshot(written: Written) -> None:
    written.append(1, 2)
    written.commit(FileChanges(added_deletes=written.deletes(written.files[0], [0])))
    head, first = written.table.load_ancestry()
    with pytest.raises(errors.ForeignChangeError, match=f"snapshot {head.id} is a "):
        written.table.read_between(first.id, head.id)
    with pytest.raises(errors.RolledBackError, match="is newer than"):
        written.table.read_between(head.id, first.id)
    with pytest.raises(errors.RolledBackError, match="snapshot 42 is not in the history"):
        written.table.read_between(42, head.id)
