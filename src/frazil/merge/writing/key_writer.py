"""Locates folded keys in the mirror, completes their rows and writes them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.clients.iceberg.file_system import InputFiles
from frazil.clients.iceberg.write.task_writer import TaskWriter
from frazil.codec.deletes.deletion_vector import DeletionVector
from frazil.codec.key_index.entries import Entries
from frazil.errors import MissingImageError
from frazil.hooks import SystemClock, SystemRandomness
from frazil.merge.folding.change_rows import DELETE, SOFT_DELETE, UPSERT, without_deletes
from frazil.merge.planning.changes import ACTION, HI, LO, SEQUENCE, comparable, scalar_like
from frazil.merge.report import MergeAction
from frazil.merge.writing.mirror_rows import (
    Arrivals,
    ComparedContent,
    RowCompleter,
    RowPositions,
    late_arrivals,
    not_newer,
)
from frazil.merge.writing.task_result import TaskResult
from frazil.mirror.index.locating import KeyLocator, LocatedRows
from frazil.model.key_index import TOMBSTONE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from frazil.clients.iceberg.write.row_order import RowOrder
    from frazil.clients.iceberg.write.task_writer import WrittenPositions
    from frazil.clients.iceberg.write.write_target import WriteTarget
    from frazil.merge.folding.change_rows import FoldedKeys
    from frazil.merge.planning.changes import SequenceValue
    from frazil.mirror.index.locating import TaskIndex
    from frazil.model.schema.types import Field

# Tasks take blocks of ordinals in turn: a task that writes more files than a block has continues in
# its next one. Gaps cost nothing.
ORDINALS_A_BLOCK = 4_096
# Rows arrive in the order of their hash, so all partitions are written at the same time.
_OPEN_FILES = 200
_NOWHERE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyWriterSpec:
    """The settings of a KeyWriter; picklable.

    ``fields`` are the columns of a change; ``deleted_column`` is the flag of soft deletes.
    ``has_sequences`` is set for order per_key: entries have sequences, deletes write tombstones,
    and a change that is not newer than the mirror is late.
    """

    target: WriteTarget
    fields: tuple[Field, ...]
    order: RowOrder
    index: TaskIndex
    first_ordinal: int
    deleted_column: str | None
    has_lower_half: bool
    has_sequences: bool
    # The columns that a change may leave out.
    optional_ids: frozenset[int] = frozenset()
    content: ComparedContent = field(default_factory=ComparedContent)
    # The highest sequence merged before; with order per_key.
    highest_merged: SequenceValue | None = None
    ignores_deletes: bool = False


@dataclass(frozen=True, slots=True)
class LocatedKeys:
    """Folded keys with the live rows they have in the mirror; late ones are masked out.

    ``source`` has, for each key, the row to read missing columns from.
    """

    folded: FoldedKeys
    found: LocatedRows
    late: NDArray[np.bool_]
    is_known: NDArray[np.bool_]
    source: RowPositions


@dataclass(frozen=True, slots=True)
class _WrittenBatch:
    """Keys whose rows were passed to the writer; positions are known when it is closed."""

    hi: NDArray[np.uint64]
    lo: NDArray[np.uint64] | None
    sequence: pa.Array | None
    positions: WrittenPositions


class KeyWriter:
    """Locates and writes the keys of one task."""

    def __init__(self, spec: KeyWriterSpec, task: int, tasks: int) -> None:
        self._spec = spec
        self._clock = SystemClock()
        self._task = task
        self._tasks = tasks
        self._writer = TaskWriter(
            spec.target,
            clock=self._clock,
            randomness=SystemRandomness(),
            open_files=_OPEN_FILES,
        )
        self._locator = KeyLocator(spec.index)
        inputs = InputFiles(dict(spec.target.io_properties))
        locations = {each.ordinal: each.location for each in spec.index.files}
        self._completer = RowCompleter(spec.fields, locations, inputs)
        self._counts: Counter[MergeAction] = Counter()
        self._unknown_updates = 0
        self._surplus = 0
        self._deleted: dict[int, list[NDArray[np.int64]]] = {}
        self._written: list[_WrittenBatch] = []
        self._entries: list[Entries] = []
        # The last change that was compared with others of its key.
        self._waiting: pa.RecordBatch | None = None

    def locate(self, folded: FoldedKeys, *, mirror_is_empty: bool) -> LocatedKeys:
        """The current rows of the keys, and which keys are late."""
        count = len(folded)
        found = _nothing() if mirror_is_empty else self._locator.locate(folded.hi, folded.lo)
        late = np.zeros(count, np.bool_)
        if self._spec.has_sequences:
            changes = Arrivals(folded.action, folded.sequence, folded.rows, found)
            late = late_arrivals(changes, self._spec.content, self._completer.read)
            found = found.of_keys(~late)
            folded = self._keeping_newest(folded, found)
        is_known = np.zeros(count, np.bool_)
        is_known[found.key] = True
        source = self._sources(folded, found, mirror_is_empty=mirror_is_empty)
        return LocatedKeys(folded, found, late, is_known, source)

    def compare_superseded(self, batch: pa.RecordBatch) -> None:
        """Refuse changes that contradict the mirror, even if a newer one supersedes them.

        Batches are sorted by key and sequence, within each and from one to the next. The last
        change of each key is compared when its row is located; that of the batch waits for the
        next one, which may have a newer one of its key.
        """
        if self._spec.ignores_deletes:
            batch = without_deletes(batch)
        merged = self._spec.highest_merged
        if not self._spec.has_sequences or merged is None or not batch.num_rows:
            return
        hi, lo = (batch.column(name).to_numpy() for name in (HI, LO))
        waiting, self._waiting = self._waiting, batch.take(pa.array([batch.num_rows - 1]))
        if waiting is not None:
            ahead = tuple(waiting.column(name)[0].as_py() for name in (HI, LO))
            if ahead == (hi[0], lo[0]):
                self._compare(waiting, np.zeros(1, np.intp), merged)
        is_superseded = (hi[1:] == hi[:-1]) & (lo[1:] == lo[:-1])
        self._compare(batch, np.flatnonzero(is_superseded), merged)

    def _compare(self, batch: pa.RecordBatch, at: NDArray[np.intp], merged: SequenceValue) -> None:
        """Only what is not newer than everything merged can be in the mirror."""
        sequence = batch.column(SEQUENCE).take(pa.array(at))
        known = pc.less_equal(comparable(sequence), scalar_like(merged, sequence))
        chosen = at[known.to_numpy(zero_copy_only=False)]
        if not len(chosen):
            return
        changes = batch.take(pa.array(chosen))
        halves = [changes.column(name).to_numpy().view(np.uint64) for name in (HI, LO)]
        keys, owners = np.unique(np.stack(halves, axis=1), axis=0, return_inverse=True)
        hi, lo = (np.ascontiguousarray(keys[:, half]) for half in (0, 1))
        found = self._locator.locate(hi, lo).for_changes(owners.ravel())
        action = changes.column(ACTION).to_numpy()
        arrivals = Arrivals(action, changes.column(SEQUENCE), changes, found)
        late_arrivals(arrivals, self._spec.content, self._completer.read)

    def write(self, keys: LocatedKeys) -> None:
        """Write rows to data files, dead positions to bitmaps, new positions to index entries."""
        folded, known = keys.folded, keys.is_known
        lacking = folded.needs_mirror & (keys.source.file == _NOWHERE) & ~keys.late
        is_absent = lacking & (folded.action == SOFT_DELETE)
        orphans = int(np.count_nonzero(lacking & (folded.action == UPSERT)))
        if orphans:
            message = f"{orphans} changes left columns out, and there is no row to take them from."
            raise MissingImageError(message, table=self._spec.target.table)
        written = (folded.action != DELETE) & ~keys.late & ~is_absent
        self._count(keys, written)
        self._mark_dead(keys.found)
        rows = self._rows(keys, written)
        if rows.num_rows:
            self._write_rows(folded, rows, np.flatnonzero(written))
        if self._spec.has_sequences:
            self._remember(folded, np.flatnonzero(~written & ~keys.late))
        self._surplus += len(keys.found.key) - int(np.count_nonzero(known))

    def close(self) -> TaskResult:
        """Finish the files."""
        files = self._writer.close()
        entries = [self._entries_of(each) for each in self._written] + self._entries
        return TaskResult(
            files=files,
            ordinals=tuple(self._ordinals(np.arange(len(files))).tolist()),
            deleted={
                ordinal: DeletionVector.from_positions(np.concatenate(parts))
                for ordinal, parts in self._deleted.items()
            },
            entries=Entries.concatenate(entries or [Entries.empty()]),
            counts=self._counts,
            unknown_updates=self._unknown_updates,
            surplus_rows=self._surplus,
        )

    def abandon(self) -> None:
        """Stop; the files that were begun are left to maintenance."""
        self._writer.abandon()

    def _sources(
        self, folded: FoldedKeys, found: LocatedRows, *, mirror_is_empty: bool
    ) -> RowPositions:
        """The row each key takes its missing columns from: its own, or another key's."""
        own = (folded.source_hi == folded.hi) & (folded.source_lo == folded.lo)
        if mirror_is_empty or bool(own[folded.needs_mirror].all()):
            return _first_rows(found, np.arange(len(folded)), len(folded))
        pairs = np.stack([folded.source_hi, folded.source_lo], axis=1)
        requested, back = np.unique(pairs, axis=0, return_inverse=True)
        hi, lo = (np.ascontiguousarray(requested[:, half]) for half in (0, 1))
        return _first_rows(self._locator.locate(hi, lo), back.ravel(), len(requested))

    def _keeping_newest(self, folded: FoldedKeys, found: LocatedRows) -> FoldedKeys:
        """Let soft deletes keep the mirror's row instead of a late one."""
        if folded.kept_sequence is None:
            return folded
        stale = not_newer(folded.kept_sequence, found, self._spec.content.default_sequence)
        stale &= folded.action == SOFT_DELETE
        if not stale.any():
            return folded
        nowhere = np.zeros(len(folded), np.bool_)
        optional = self._spec.optional_ids
        return replace(
            folded,
            missing={each: folded.missing.get(each, nowhere) | stale for each in optional},
            needs_mirror=folded.needs_mirror | stale,
        )

    def _count(self, keys: LocatedKeys, written: NDArray[np.bool_]) -> None:
        folded, known = keys.folded, keys.is_known
        is_upsert = written & (folded.action == UPSERT)
        gone = ~keys.late & (folded.action != UPSERT)
        self._counts[MergeAction.LATE] += int(np.count_nonzero(keys.late))
        self._counts[MergeAction.INSERT] += int(np.count_nonzero(is_upsert & ~known))
        self._counts[MergeAction.UPDATE] += int(np.count_nonzero(is_upsert & known))
        effective = gone & (known | written)
        self._counts[MergeAction.DELETE] += int(np.count_nonzero(effective))
        self._counts[MergeAction.NONE] += int(np.count_nonzero(gone & ~effective))
        self._unknown_updates += int(np.count_nonzero(is_upsert & ~known & folded.is_update))

    def _mark_dead(self, found: LocatedRows) -> None:
        if not len(found.key):
            return
        order = np.argsort(found.file, kind="stable")
        files, positions = found.file[order], found.position[order]
        ordinals, starts = np.unique(files, return_index=True)
        for ordinal, of_file in zip(ordinals, np.split(positions, starts[1:]), strict=True):
            self._deleted.setdefault(int(ordinal), []).append(of_file)

    def _rows(self, keys: LocatedKeys, written: NDArray[np.bool_]) -> pa.RecordBatch:
        folded = keys.folded
        rows = folded.rows
        if folded.missing:
            missing = {each: mask & written for each, mask in folded.missing.items()}
            rows = self._completer.complete(rows, missing, keys.source)
        if self._spec.deleted_column is not None:
            marks = pa.array(folded.action == SOFT_DELETE)
            rows = rows.append_column(self._spec.deleted_column, marks)
        return rows if written.all() else rows.filter(pa.array(written))

    def _write_rows(self, folded: FoldedKeys, rows: pa.RecordBatch, keys: NDArray[np.intp]) -> None:
        order = self._spec.order.of(rows)
        positions = self._writer.write(rows.take(order))
        at = keys[order.to_numpy()]
        self._written.append(
            _WrittenBatch(
                folded.hi[at],
                folded.lo[at] if self._spec.has_lower_half else None,
                folded.sequence.take(pa.array(at)) if self._spec.has_sequences else None,
                positions,
            )
        )

    def _entries_of(self, keys: _WrittenBatch) -> Entries:
        files = self._ordinals(keys.positions.file).astype(np.int32)
        return Entries(keys.hi, keys.lo, files, keys.positions.position, keys.sequence)

    def _ordinals(self, files: NDArray[np.integer]) -> NDArray[np.int64]:
        return self._spec.first_ordinal + plan_ordinals(files, self._task, self._tasks)

    def _remember(self, folded: FoldedKeys, at: NDArray[np.intp]) -> None:
        """Write tombstones with the sequence, so that late changes do not restore deleted keys."""
        if not len(at):
            return
        now = int(self._clock.now().timestamp())
        self._entries.append(
            Entries(
                folded.hi[at],
                folded.lo[at] if self._spec.has_lower_half else None,
                np.full(len(at), TOMBSTONE, np.int32),
                np.full(len(at), _NOWHERE, np.int64),
                folded.sequence.take(pa.array(at)),
                np.full(len(at), now, np.int64),
            )
        )


def plan_ordinals(files: NDArray[np.integer], task: int, tasks: int) -> NDArray[np.int64]:
    """The ordinals of files that one of several tasks numbers from zero; no two tasks share one."""
    turn, at = np.divmod(files.astype(np.int64), ORDINALS_A_BLOCK)
    ordinals: NDArray[np.int64] = (turn * tasks + task) * ORDINALS_A_BLOCK + at
    return ordinals


def _nothing() -> LocatedRows:
    return LocatedRows(np.empty(0, np.intp), np.empty(0, np.int32), np.empty(0, np.int64))


def _first_rows(found: LocatedRows, keys: NDArray[np.intp], count: int) -> RowPositions:
    """For each of these keys the first located row, or ``_NOWHERE``."""
    first = np.searchsorted(found.key, np.arange(count + 1))
    has_any = first[1:] > first[:-1]
    file = np.full(count, _NOWHERE, np.int32)
    position = np.full(count, _NOWHERE, np.int64)
    file[has_any] = found.file[first[:-1][has_any]]
    position[has_any] = found.position[first[:-1][has_any]]
    return RowPositions(file[keys], position[keys])
