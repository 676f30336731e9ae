"""An index is used if it is the newest snapshot's own, counts as that does, and lies in the table.

For any other the reason is given, and whether the next one can be made from it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from frazil.clients.iceberg.file_system import InputFiles
from frazil.clients.iceberg.read.table_metadata import SnapshotFacts
from frazil.codec.key_index.head import write_head
from frazil.codec.key_index.run import encode_run
from frazil.errors import StorageError
from frazil.mirror.index.loading import (
    HEAD_PROPERTY,
    Expectation,
    KeyIndex,
    Unusable,
    count_deletes,
    load_index,
)
from frazil.model.key_index import (
    IndexKey,
    IndexManifest,
    IndexRun,
    RepairReason,
    RunBlob,
    RunPart,
    plan_key_hash,
)
from frazil.model.schema.types import Primitive
from frazil.model.table_facts import SnapshotOperation
from tests.unit.codec.key_index.index_rows import entries_of
from tests.unit.mirror.index_files import data_file, position_deletes, put, vectors

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from frazil.model.key_index import IndexedFile

UUID, SNAPSHOT = "6ba7b810-9dad-11d1-80b4-00c04fd430c8", 40
KEY = IndexKey(field_ids=(1,), types=(Primitive.LONG,), hash=plan_key_hash((Primitive.LONG,)))
OTHER_KEY = replace(KEY, field_ids=(2,))


class Table:
    """A table in a folder: two data files, two deletion vectors in one file, and a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "table"
        self.folder.mkdir()
        names = [f"{self.folder}/data/{each}.parquet" for each in (1, 2)]
        deleted = vectors(self.folder, {names[0]: [1, 2], names[1]: [3]})
        files = [
            replace(data_file(at, deleted[name], rows=100), location=name)
            for at, name in enumerate(names)
        ]
        part = RunPart(f"{self.folder}/run.puffin", 1500, (RunBlob(0, 4, 600, 480, 11),))
        self.manifest = IndexManifest(
            table_uuid=UUID,
            snapshot_id=SNAPSHOT,
            generation="g",
            key=KEY,
            next_ordinal=2,
            files=tuple(files),
            runs=(IndexRun("r", 0, (part,)),),
        )
        self.counts = {
            "total-data-files": 2,
            "total-records": 200,
            "total-delete-files": 2,
            "total-position-deletes": 3,
        }
        self.expected = Expectation(
            table_uuid=UUID, key=KEY, sequence_type=None, locations=(str(self.folder),)
        )

    def snapshot(
        self, id_: int = SNAPSHOT, head: str | None = None, **counts: int
    ) -> SnapshotFacts:
        found = self.counts | {name.replace("_", "-"): each for name, each in counts.items()}
        summary = {name: str(each) for name, each in found.items()}
        if head is not None:
            summary[HEAD_PROPERTY] = head
        append = SnapshotOperation.APPEND
        return SnapshotFacts(
            id=id_, parent=id_ - 1, sequence=id_, operation=append, summary=summary
        )

    def head(self, manifest: IndexManifest | None = None, young: bytes | None = None) -> str:
        return put(self.folder, write_head(manifest or self.manifest, young).data)

    def load(self, ancestry: Sequence[SnapshotFacts]) -> KeyIndex | Unusable:
        return load_index(iter(ancestry), InputFiles({}), self.expected)

    def judge(self, **changed: Any) -> KeyIndex | Unusable:
        """The index of a table whose manifest has something else."""
        head = self.head(replace(self.manifest, **changed))
        return self.load([self.snapshot(head=head)])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path)


def refused(found: KeyIndex | Unusable, reason: RepairReason, *, keeps: bool = False) -> str:
    """The reason why an index cannot be used, and whether some of it can."""
    assert isinstance(found, Unusable)
    assert found.reason is reason
    assert (found.base is not None) is keeps
    return found.detail


def test_the_index_that_the_newest_snapshot_names_is_used(table: Table) -> None:
    older = table.snapshot(SNAPSHOT - 1, "/never/read")
    found = table.load([table.snapshot(head=table.head()), older])
    assert isinstance(found, KeyIndex)
    assert found.manifest == table.manifest
    assert (len(found.young), found.young_blob) == (0, None)


def test_the_young_entries_are_those_of_the_head(table: Table) -> None:
    entries = entries_of([(1, 0, 0, 5), (2, 0, 1, 6)])
    young = encode_run(entries)
    manifest = replace(table.manifest, young_entries=2)
    found = table.load([table.snapshot(head=table.head(manifest, young))])
    assert isinstance(found, KeyIndex)
    assert list(found.young.hi) == list(entries.hi)
    assert found.young_blob == young


def test_after_commits_of_others_the_index_is_the_base_of_the_next_one(table: Table) -> None:
    named = table.snapshot(head=table.head())
    others = [table.snapshot(SNAPSHOT + 2), table.snapshot(SNAPSHOT + 1)]
    found = table.load([*others, named])
    detail = refused(found, RepairReason.FOREIGN_COMMIT, keeps=True)
    assert (str(SNAPSHOT + 2) in detail, str(SNAPSHOT) in detail) == (True, True)
    assert isinstance(found, Unusable)
    assert isinstance(found.base, KeyIndex)
    assert found.base.manifest == table.manifest


def test_an_index_below_commits_of_others_must_be_a_good_one(table: Table) -> None:
    head = table.head(replace(table.manifest, table_uuid="another"))
    found = table.load([table.snapshot(SNAPSHOT + 1), table.snapshot(head=head)])
    refused(found, RepairReason.DAMAGED)


def test_without_an_index_all_is_read(table: Table) -> None:
    refused(table.load([table.snapshot(), table.snapshot(SNAPSHOT - 1)]), RepairReason.NO_ANCESTOR)
    refused(table.load([]), RepairReason.NO_ANCESTOR)


def test_a_missing_or_damaged_head_is_reported_and_an_unreachable_store_is_raised(
    table: Table,
) -> None:
    missing = table.load([table.snapshot(head=f"{table.folder}/gone.puffin")])
    refused(missing, RepairReason.MISSING)
    damaged = table.load([table.snapshot(head=put(table.folder, b"PFA1 and nothing"))])
    refused(damaged, RepairReason.DAMAGED)
    # A folder cannot be read, and is there.
    (table.folder / "folder.puffin").mkdir()
    with pytest.raises(StorageError):
        table.load([table.snapshot(head=f"{table.folder}/folder.puffin")])


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"table_uuid": "another"}, RepairReason.DAMAGED),
        ({"snapshot_id": SNAPSHOT - 1}, RepairReason.DAMAGED),
        ({"key": OTHER_KEY}, RepairReason.OTHER_KEY),
        ({"sequence_type": Primitive.LONG}, RepairReason.OTHER_KEY),
        ({"next_ordinal": 2**30 + 1}, RepairReason.DAMAGED),
    ],
    ids=["another table", "another snapshot", "another key", "another order", "ordinals"],
)
def test_nothing_is_taken_over_from_an_index_of_something_else(
    table: Table, changed: dict[str, Any], reason: RepairReason
) -> None:
    refused(table.judge(**changed), reason)


def test_an_index_with_sequences_is_used_where_they_are_expected(table: Table) -> None:
    table.expected = replace(table.expected, sequence_type=Primitive.STRING)
    refused(table.judge(), RepairReason.OTHER_KEY)
    assert isinstance(table.judge(sequence_type=Primitive.STRING), KeyIndex)


def test_the_numbers_of_files_may_be_used_up_to_a_half(table: Table) -> None:
    assert isinstance(table.judge(next_ordinal=2**30), KeyIndex)


def moved(file: IndexedFile, location: str) -> IndexedFile:
    """The same data file elsewhere; its deletes stay where they are."""
    deletes = tuple(replace(each, data_file=location) for each in file.deletes)
    return replace(file, location=location, deletes=deletes)


def test_files_outside_of_the_table_are_not_believed(table: Table, tmp_path: Path) -> None:
    outside = put(tmp_path, write_head(table.manifest, None).data)
    assert "outside" in refused(table.load([table.snapshot(head=outside)]), RepairReason.DAMAGED)

    one, other = table.manifest.files
    apart = (one, moved(other, f"{tmp_path}/secret/2.parquet"))
    assert "outside" in refused(table.judge(files=apart), RepairReason.DAMAGED, keeps=True)
    (vector,) = other.deletes
    elsewhere = replace(vector, location=f"{tmp_path}/secret.puffin")
    deleted = (one, replace(other, deletes=(elsewhere,)))
    assert "outside" in refused(table.judge(files=deleted), RepairReason.DAMAGED, keeps=True)

    (run,) = table.manifest.runs
    part = replace(run.parts[0], location=f"{tmp_path}/secret.puffin")
    runs = (run, IndexRun("s", 0, (part,)))
    assert "outside" in refused(table.judge(runs=runs), RepairReason.DAMAGED)


def test_a_second_location_of_the_table_is_its_own(table: Table, tmp_path: Path) -> None:
    one, other = table.manifest.files
    files = (one, moved(other, f"{tmp_path}/more/2.parquet"))
    locations = (str(table.folder), f"{tmp_path}/more")
    table.expected = replace(table.expected, locations=locations)
    assert isinstance(table.judge(files=files), KeyIndex)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("total_data_files", "2 data files of 3"),
        ("total_records", "200 records of 201"),
        ("total_delete_files", "2 delete files of 3"),
        ("total_position_deletes", "3 position deletes of 4"),
    ],
)
def test_a_file_table_that_counts_otherwise_than_the_snapshot_is_only_a_base(
    table: Table, name: str, words: str
) -> None:
    more = table.counts[name.replace("_", "-")] + 1
    found = table.load([table.snapshot(head=table.head(), **{name: more})])
    assert refused(found, RepairReason.DAMAGED, keeps=True).endswith(f"has {words}")


def test_deletes_that_concern_no_file_are_counted_as_files_and_not_as_rows(table: Table) -> None:
    head = table.head(replace(table.manifest, idle_deletes=2))
    totals = {"total_delete_files": 4, "total_position_deletes": 900}
    assert isinstance(table.load([table.snapshot(head=head, **totals)]), KeyIndex)
    refused(table.load([table.snapshot(head=head)]), RepairReason.DAMAGED, keeps=True)


def test_a_delete_file_of_several_data_files_counts_once(table: Table) -> None:
    one, other = table.manifest.files
    shared = replace(position_deletes(table.folder, one.location, [5, 6]), data_file=None)
    files = tuple(replace(each, deletes=(*each.deletes, shared)) for each in (one, other))
    assert count_deletes(files) == 3
    head = table.head(replace(table.manifest, files=files))
    totals = {"total_delete_files": 3, "total_position_deletes": 5}
    assert isinstance(table.load([table.snapshot(head=head, **totals)]), KeyIndex)
