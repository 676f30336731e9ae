"""A mirror in a folder, merged as a task merges it: what tests of the key writer look at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from frazil.clients.iceberg.write.row_order import RowOrder
from frazil.clients.iceberg.write.write_target import plan_write_target
from frazil.codec.key_index.entries import Entries
from frazil.codec.key_index.run import encode_run
from frazil.merge.folding.arrow_fold import SortedFolder, fold_linked
from frazil.merge.folding.change_rows import FoldColumn, FoldLayout
from frazil.merge.planning.changes import (
    ACTION,
    HI,
    IS_UPDATE,
    LO,
    PREVIOUS_HI,
    PREVIOUS_LO,
    SEQUENCE,
    UNCHANGED,
)
from frazil.merge.writing.key_writer import KeyWriter, KeyWriterSpec
from frazil.merge.writing.mirror_rows import ComparedContent
from frazil.mirror.index.locating import TaskIndex
from frazil.model.key_index import IndexedFile
from frazil.model.policy import Deletes
from frazil.model.schema.types import Field, Primitive, Schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from frazil.merge.folding.change_rows import FoldedKeys
    from frazil.merge.writing.task_result import TaskResult

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
    # How many changes a task takes at a time.
    chunk: int = 1_000
    # Whether deletes were soft once.
    has_flag: bool = False
    files: list[IndexedFile] = field(default_factory=list)
    entries: list[Entries] = field(default_factory=list)
    dead: dict[int, set[int]] = field(default_factory=dict)
    # Which of so many tasks writes.
    task: tuple[int, int] = (0, 1)
    # Keys of one number have a hash of one half.
    wide: bool = True

    def merge(
        self,
        *changes: SentChange,
        unchanged: dict[int, list[int]] | None = None,
        empty: bool = False,
        moved: dict[int, int] | None = None,
        updates: frozenset[int] = frozenset(),
    ) -> TaskResult:
        """Changes as key, action, sequence and name, sorted by key and sequence.

        By sequence, ``unchanged`` has the columns that were left out, ``moved`` the key that the
        row had before, and ``updates`` what the source called one.
        """
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
                has_lower_half=self.wide,
                has_sequences=self.per_key,
                optional_ids=layout.optional_ids,
                content=ComparedContent(
                    fields=(NAME, NOTE), deleted=GONE if self.has_flag else None
                ),
                highest_merged=self.highest_merged,
                ignores_deletes=self.deletes is Deletes.IGNORE,
            ),
            task=self.task[0],
            tasks=self.task[1],
        )
        batch = _batch(changes, unchanged or {}, moved or {}, updates, wide=self.wide)
        chunk = batch.num_rows if moved is not None else self.chunk
        parts = [batch.slice(at, chunk) for at in range(0, batch.num_rows, chunk)]
        for folded in _folded(parts, layout, writer, linked=moved is not None):
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

    def _take(self, written: TaskResult) -> None:
        for ordinal, vector in written.deleted.items():
            self.dead.setdefault(ordinal, set()).update(vector.positions().tolist())
        self.files += [
            IndexedFile(
                ordinal=written.ordinals[at],
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


def _folded(
    parts: Sequence[pa.RecordBatch], layout: FoldLayout, writer: KeyWriter, *, linked: bool
) -> Iterator[FoldedKeys | None]:
    folder = SortedFolder(layout)
    for part in parts:
        writer.compare_superseded(part)
        yield fold_linked(pa.Table.from_batches([part]), layout) if linked else folder.push(part)
    yield None if linked else folder.finish()


def _hashes(keys: Sequence[int | None], *, wide: bool) -> tuple[pa.Array, pa.Array]:
    """Wide ones share each half with another key, and never both."""
    halves = [(None, None) if key is None else divmod(key, 2) if wide else (key, 0) for key in keys]
    hi, lo = zip(*halves, strict=True)
    return pa.array(hi, pa.int64()), pa.array(lo, pa.int64())


def _batch(
    changes: tuple[SentChange, ...],
    unchanged: dict[int, list[int]],
    moved: dict[int, int],
    updates: frozenset[int],
    *,
    wide: bool,
) -> pa.RecordBatch:
    keys, actions, sequences, names = zip(*changes, strict=True)
    left_out = [unchanged.get(sequence) for sequence in sequences]
    notes = [
        None if left or name is None else f"note {name}"
        for left, name in zip(left_out, names, strict=True)
    ]
    hi, lo = _hashes(keys, wide=wide)
    previous_hi, previous_lo = _hashes([moved.get(each) for each in sequences], wide=wide)
    return pa.RecordBatch.from_pydict(
        {
            HI: hi,
            LO: lo,
            PREVIOUS_HI: previous_hi,
            PREVIOUS_LO: previous_lo,
            ACTION: pa.array(actions, pa.int8()),
            SEQUENCE: pa.array(sequences, pa.int64()),
            IS_UPDATE: pa.array([sequence in updates for sequence in sequences]),
            UNCHANGED: pa.array(left_out, pa.list_(pa.int32())),
            "id": pa.array(keys, pa.int64()),
            "name": pa.array(names, pa.string()),
            "note": pa.array(notes, pa.string()),
            "seq": pa.array(sequences, pa.int64()),
        }
    )
