"""Folded keys and a mirror of real files: where rows go, what dies, what is remembered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frazil.clients.iceberg.write.write_target import plan_write_target
from frazil.codec.key_index.entries import Entries
from frazil.codec.key_index.run import encode_run
from frazil.errors import DuplicateKeyError, MissingImageError
from frazil.merge.folding.change_rows import FoldColumn, FoldLayout
from frazil.merge.folding.sorted_folder import SortedFolder
from frazil.merge.planning.change_columns import ACTION, HI, IS_UPDATE, LO, SEQUENCE, UNCHANGED
from frazil.merge.writing.equal_sequences import ComparedContent
from frazil.merge.writing.key_writer import KeyWriter, KeyWriterSpec
from frazil.merge.writing.row_order import RowOrder
from frazil.mirror.index.locating import TaskIndex
from frazil.model.key_index import TOMBSTONE, IndexedFile
from frazil.model.policy import Deletes
from frazil.model.schema.types import Field, Primitive, Schema

if TYPE_CHECKING:
    from pathlib import Path

    from frazil.merge.writing.key_writer import WrittenKeys

ID, NAME, NOTE, SEQ = (
    Field(1, "id", Primitive.LONG, required=True),
    Field(2, "name", Primitive.STRING),
    Field(3, "note", Primitive.STRING),
    Field(4, "seq", Primitive.LONG),
)
GONE = Field(5, "gone", Primitive.BOOLEAN)
UP, DEL = 0, 1
SentChange = tuple[int, int, int, str | None]


@dataclass(slots=True)
class Table:
    """A mirror in a folder: merges go through the fold and the writer, as in a task."""

    folder: Path
    deletes: Deletes = Deletes.APPLY
    per_key: bool = True
    highest_merged: int | None = None
    # Whether deletes were soft once.
    has_flag: bool = False
    files: list[IndexedFile] = field(default_factory=list)
    entries: list[Entries] = field(default_factory=list)
    dead: dict[int, set[int]] = field(default_factory=dict)

    def merge(
        self,
        *changes: SentChange,
        unchanged: dict[int, list[int]] | None = None,
        empty: bool = False,
    ) -> WrittenKeys:
        """Changes as key, action, sequence and name, sorted by key and sequence."""
        soft = self.deletes is Deletes.SOFT
        self.has_flag |= soft
        fields = (ID, NAME, NOTE, SEQ)
        schema = Schema(0, (*fields, GONE) if self.has_flag else fields)
        columns = [FoldColumn(each.name, each.id, each in (ID, SEQ)) for each in fields]
        layout = FoldLayout(tuple(columns), self.deletes)
        young = Entries.concatenate(self.entries).sorted() if self.entries else None
        writer = KeyWriter(
            KeyWriterSpec(
                target=plan_write_target(
                    table="t",
                    location=str(self.folder),
                    schema=schema,
                    properties={},
                    io_properties={},
                ),
                fields=fields,
                order=RowOrder((("name", True),)),
                index=TaskIndex(
                    runs=(),
                    young=None if young is None else encode_run(young),
                    files=tuple(self.files),
                    io_properties=(),
                    cache_dir=str(self.folder / "cache"),
                    cache_bytes=1 << 20,
                ),
                first_ordinal=len(self.files),
                deleted_column="gone" if soft else None,
                has_lower_half=False,
                has_sequences=self.per_key,
                optional_ids=layout.optional_ids,
                content=ComparedContent(
                    fields=(NAME, NOTE), deleted=GONE if self.has_flag else None
                ),
                highest_merged=self.highest_merged,
                ignores_deletes=self.deletes is Deletes.IGNORE,
            ),
            task=0,
            tasks=1,
        )
        batch = _batch(changes, unchanged or {})
        writer.compare_superseded(batch)
        folder = SortedFolder(layout)
        for folded in (folder.push(batch), folder.finish()):
            if folded is not None:
                writer.write(writer.locate(folded, mirror_is_empty=empty))
        written = writer.close()
        self._take(written)
        self.highest_merged = max(self.highest_merged or 0, *(each[2] for each in changes))
        return written

    def rows(self) -> dict[int, tuple[object, ...]]:
        """The live rows by key."""
        found: dict[int, tuple[object, ...]] = {}
        for file in self.files:
            table = pq.read_table(file.location.removeprefix("file:"))
            for at, row in enumerate(table.to_pylist()):
                if at not in self.dead.get(file.ordinal, set()):
                    assert row["id"] not in found
                    found[row["id"]] = tuple(row.values())[1:]
        return found

    def _take(self, written: WrittenKeys) -> None:
        for ordinal, vector in written.deleted.items():
            self.dead.setdefault(ordinal, set()).update(vector.positions().tolist())
        self.files += [
            IndexedFile(
                ordinal=int(written.ordinals[at]),
                location=each.location,
                rows=each.rows,
                size=each.size,
                spec_id=0,
                partition="{}",
            )
            for at, each in enumerate(written.files)
        ]
        # Entries of rows that died are dropped, as the deletion vectors would say.
        self.entries.append(written.entries)
        self.entries = [each.take(self._alive(each)) for each in self.entries]

    def _alive(self, entries: Entries) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        positions = zip(entries.file.tolist(), entries.position.tolist(), strict=True)
        return np.array([at not in self.dead.get(file, set()) for file, at in positions], np.bool_)


def _batch(changes: tuple[SentChange, ...], unchanged: dict[int, list[int]]) -> pa.RecordBatch:
    keys, actions, sequences, names = zip(*changes, strict=True)
    left_out = [unchanged.get(sequence) for sequence in sequences]
    notes = [
        None if left or name is None else f"note {name}"
        for left, name in zip(left_out, names, strict=True)
    ]
    return pa.RecordBatch.from_pydict(
        {
            HI: pa.array(keys, pa.int64()),
            LO: pa.array([0] * len(keys), pa.int64()),
            ACTION: pa.array(actions, pa.int8()),
            SEQUENCE: pa.array(sequences, pa.int64()),
            IS_UPDATE: pa.array([False] * len(keys)),
            UNCHANGED: pa.array(left_out, pa.list_(pa.int32())),
            "id": pa.array(keys, pa.int64()),
            "name": pa.array(names, pa.string()),
            "note": pa.array(notes, pa.string()),
            "seq": pa.array(sequences, pa.int64()),
        }
    )


def counts(written: WrittenKeys) -> dict[str, int]:
    return {action.value: count for action, count in written.counts.items() if count}


def test_rows_are_written_in_order_replaced_and_removed(tmp_path: Path) -> None:
    table = Table(tmp_path, per_key=False)
    first = table.merge((1, UP, 1, "a"), (2, UP, 2, "b"), (3, UP, 3, "c"))
    assert (counts(first), list(first.ordinals)) == ({"insert": 3}, [0])
    # Names fall in the order of the file; the last key comes when no more of it can follow.
    assert first.entries.position.tolist() == [0, 1, 2]
    assert first.entries.hi.tolist() == [2, 1, 3]
    assert first.entries.sequence is None
    again = table.merge((1, UP, 4, "z"), (2, DEL, 5, None), (4, DEL, 6, None), (5, UP, 7, "e"))
    assert counts(again) == {"insert": 1, "update": 1, "delete": 1, "none": 1}
    assert again.deleted[0].positions().tolist() == [0, 1]
    assert TOMBSTONE not in again.entries.file.tolist()
    assert {key: row[0] for key, row in table.rows().items()} == {1: "z", 3: "c", 5: "e"}


def test_columns_that_were_left_out_come_from_the_row_or_stop_the_merge(tmp_path: Path) -> None:
    table = Table(tmp_path, per_key=False)
    table.merge((1, UP, 1, "a"), (2, UP, 1, "b"))
    table.merge((1, UP, 2, "z"), (2, UP, 3, "y"), unchanged={2: [3]})
    assert {key: row[:2] for key, row in table.rows().items()} == {
        1: ("z", "note a"),
        2: ("y", "note y"),
    }
    with pytest.raises(MissingImageError, match=r"^t: 1 changes"):
        table.merge((9, UP, 4, "x"), unchanged={4: [3]})
    with pytest.raises(MissingImageError):
        table.merge((1, UP, 4, "x"), unchanged={4: [3]}, empty=True)


def test_in_an_emptied_mirror_nothing_is_found(tmp_path: Path) -> None:
    table = Table(tmp_path, per_key=False)
    table.merge((1, UP, 1, "a"))
    written = table.merge((1, UP, 2, "z"), (2, DEL, 2, None), empty=True)
    assert (counts(written), written.deleted) == ({"insert": 1, "none": 1}, {})


@pytest.mark.fault("N29")
def test_what_is_not_newer_is_late_and_deletes_are_remembered(tmp_path: Path) -> None:
    table = Table(tmp_path)
    first = table.merge((1, UP, 5, "a"), (2, UP, 5, "b"), (3, DEL, 5, None))
    assert first.entries.sequence is not None
    assert sorted(first.entries.sequence.to_pylist()) == [5, 5, 5]
    late = table.merge((1, UP, 4, "x"), (2, UP, 5, "b"), (3, UP, 4, "x"), (4, UP, 1, "d"))
    assert counts(late) == {"late": 3, "insert": 1}
    assert late.deleted == {}
    gone = table.merge((1, DEL, 6, None), (3, DEL, 5, None))
    assert counts(gone) == {"delete": 1, "late": 1}
    assert gone.entries.file.tolist() == [TOMBSTONE]
    table.merge((1, UP, 6 - 1, "x"))
    assert {key: row[0] for key, row in table.rows().items()} == {2: "b", 4: "d"}


@pytest.mark.fault("N29")
@pytest.mark.parametrize(
    "changes",
    [
        [(1, UP, 5, "x")],
        [(1, DEL, 5, None)],
        [(3, UP, 5, "x")],
        [(1, UP, 5, "x"), (1, UP, 6, "y")],
        [(1, UP, 5, "a"), (1, UP, 6, "y"), (3, UP, 5, "x"), (3, DEL, 7, None)],
    ],
)
def test_a_contradiction_is_found_even_before_a_newer_change(
    changes: list[SentChange], tmp_path: Path
) -> None:
    table = Table(tmp_path)
    table.merge((1, UP, 5, "a"), (3, DEL, 5, None))
    with pytest.raises(DuplicateKeyError, match="1 keys have different changes"):
        table.merge(*changes)


@pytest.mark.fault("N29")
def test_a_replay_before_a_newer_change_and_older_changes_have_no_effect(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.merge((1, UP, 5, "a"), (3, DEL, 5, None))
    table.merge(
        (1, UP, 4, "x"), (1, UP, 5, "a"), (1, UP, 6, "y"), (3, DEL, 5, None), (3, UP, 6, "z")
    )
    assert {key: row[0] for key, row in table.rows().items()} == {1: "y", 3: "z"}


def test_a_soft_delete_keeps_the_newest_row_and_is_nothing_without_one(tmp_path: Path) -> None:
    table = Table(tmp_path, deletes=Deletes.SOFT)
    table.merge((1, UP, 5, "a"), (2, UP, 5, "b"))
    written = table.merge(
        (1, UP, 4, "late"), (1, DEL, 7, None), (2, UP, 6, "c"), (2, DEL, 7, None), (4, DEL, 7, None)
    )
    assert counts(written) == {"delete": 2, "none": 1}
    assert table.rows() == {1: ("a", "note a", 7, True), 2: ("c", "note c", 7, True)}
    assert written.entries.file.tolist().count(TOMBSTONE) == 1
    assert counts(table.merge((1, DEL, 7, None), (4, DEL, 7, None))) == {"late": 2}
    table.merge((1, UP, 8, "back"))
    assert table.rows()[1] == ("back", "note back", 8, False)


def test_a_row_that_another_engine_doubled_is_removed_twice_and_counted(tmp_path: Path) -> None:
    table = Table(tmp_path, per_key=False)
    table.merge((1, UP, 1, "a"))
    table.merge((1, UP, 1, "a"), empty=True)
    written = table.merge((1, UP, 2, "b"))
    assert (written.surplus_rows, counts(written)) == (1, {"update": 1})
    assert sorted(written.deleted) == [0, 1]


def test_file_ordinals_continue(tmp_path: Path) -> None:
    table = Table(tmp_path, per_key=False)
    table.merge((1, UP, 1, "a"))
    assert table.merge((2, UP, 2, "b")).entries.file.tolist() == [1]


@pytest.mark.fault("N29")
def test_an_ignored_delete_contradicts_nothing_that_was_merged(tmp_path: Path) -> None:
    table = Table(tmp_path, deletes=Deletes.IGNORE)
    table.merge((1, UP, 5, "a"))
    table.merge((1, DEL, 5, None), (1, UP, 6, "b"), (2, DEL, 3, None))
    assert {key: row[0] for key, row in table.rows().items()} == {1: "b"}
    table.merge((1, DEL, 6, None))
    assert {key: row[0] for key, row in table.rows().items()} == {1: "b"}
    with pytest.raises(DuplicateKeyError):
        table.merge((1, UP, 6, "other"), (1, DEL, 7, None))


@pytest.mark.fault("N29")
def test_a_delete_comes_again_after_deletes_were_soft(tmp_path: Path) -> None:
    table = Table(tmp_path, deletes=Deletes.SOFT)
    table.merge((1, UP, 5, "a"), (1, DEL, 6, None), (2, UP, 5, "b"))
    table.deletes = Deletes.APPLY
    assert counts(table.merge((1, DEL, 6, None))) == {"late": 1}
    with pytest.raises(DuplicateKeyError):
        table.merge((1, UP, 6, "other"))
    table.merge((1, DEL, 7, None))
    assert list(table.rows()) == [2]
