"""Rows of the mirror that changes are compared with, or completed from.

A change with the same key and sequence as the mirror's row is a replay, or a contradiction. Within
a merge, the fold compares changes of one key and sequence. Across merges they are compared here
with what the earlier merge wrote: a row, a row marked as deleted, or a tombstone. Only the newest
change of each key can be compared; anything older is late, and has no effect.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.clients.iceberg.write.arrow_schema import arrow_schema
from frazil.clients.iceberg.write.conforming import conform
from frazil.merge.folding.change_rows import UPSERT, same_values
from frazil.merge.folding.fold import clashing_changes
from frazil.merge.planning.changes import comparable, scalar_like
from frazil.mirror.row_reader import read_rows
from frazil.model.schema.types import Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from frazil.clients.iceberg.file_system import InputFiles
    from frazil.merge.planning.changes import SequenceValue
    from frazil.mirror.index.locating import LocatedRows
    from frazil.model.schema.types import Field

    # Columns of the rows at these files and positions, in the given order.
    ReadBack = Callable[[NDArray[np.int32], NDArray[np.int64], list[Field]], dict[str, pa.Array]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedContent:
    """How changes are compared with rows of the mirror; picklable.

    ``fields`` are the compared columns, ``deleted`` is the flag of soft deletes. A row without a
    sequence has ``default_sequence``, if set: older changes are late, others newer. At the sequence
    ``truncated`` of the last TRUNCATE, a deleted row contradicts nothing: the TRUNCATE precedes it.
    """

    fields: tuple[Field, ...] = ()
    deleted: Field | None = None
    default_sequence: SequenceValue | None = None
    truncated: SequenceValue | None = None


def not_newer(
    sequence: pa.Array, found: LocatedRows, default_sequence: SequenceValue | None
) -> NDArray[np.bool_]:
    """Keys whose change is not newer than the mirror's row or tombstone."""
    older, rows, tombstones = _compared(sequence, found, default_sequence)
    older[found.key[rows]] = True
    older[found.tombstone_key[tombstones]] = True
    return older


@dataclass(frozen=True, slots=True)
class Arrivals:
    """One change for each located key, in the order of ``found``; ``rows`` has their columns."""

    action: NDArray[np.int8]
    sequence: pa.Array
    rows: pa.RecordBatch
    found: LocatedRows


def late_arrivals(changes: Arrivals, content: ComparedContent, read: ReadBack) -> NDArray[np.bool_]:
    """The changes that have no effect: older than the mirror's, or repeated.

    Raises DuplicateKeyError for those that contradict the mirror's row of the same sequence.
    """
    found = changes.found
    late, rows, tombstones = _compared(changes.sequence, found, content.default_sequence)
    rows &= ~late[found.key]
    tombstones &= ~late[found.tombstone_key]
    if not rows.any() and not tombstones.any():
        return late
    is_upsert = changes.action == UPSERT
    at_truncate = _at(changes.sequence, content.truncated)
    clashing = np.zeros(len(late), np.bool_)
    repeated = np.zeros(len(late), np.bool_)
    dead = found.tombstone_key[tombstones]
    repeated[dead] = ~is_upsert[dead]
    clashing[dead] = is_upsert[dead] & ~at_truncate[dead]
    keys, is_deleted, is_same = _read_back(changes, np.flatnonzero(rows), content, read)
    is_repeat = np.where(is_upsert[keys], is_same & ~is_deleted, is_deleted)
    is_free = is_upsert[keys] & is_deleted & at_truncate[keys]
    clashing[keys[~is_repeat & ~is_free]] = True
    repeated[keys[is_repeat]] = True
    # Another engine may have duplicated the row: one equal row is enough.
    clashing[keys[is_repeat]] = False
    if clashing.any():
        error = clashing_changes(int(np.count_nonzero(clashing)))
        # The mirror's rows may be the wrong ones.
        error.in_changes = False
        raise error
    return late | repeated


def _compared(
    sequence: pa.Array, found: LocatedRows, default_sequence: SequenceValue | None
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """Which changes are older than the mirror's, and which rows and tombstones are as old."""
    older = np.zeros(len(sequence), np.bool_)
    equal = []
    for keys, sequences in (
        (found.key, found.sequence),
        (found.tombstone_key, found.tombstone_sequence),
    ):
        if sequences is None or not len(keys):
            equal.append(np.zeros(len(keys), np.bool_))
            continue
        theirs = comparable(sequences)
        ours = comparable(sequence.take(pa.array(keys))).cast(theirs.type)
        # A row of another engine may have no sequence: any change is newer. A row with the default
        # sequence may be older: a change of that sequence is newer or a repeat, never a
        # contradiction.
        equal.append(_mask(pc.equal(ours, theirs)))
        if default_sequence is not None:
            theirs = pc.fill_null(theirs, scalar_like(default_sequence, sequences))
        older[keys[_mask(pc.less(ours, theirs))]] = True
    rows, tombstones = equal
    return older, rows, tombstones


def _mask(booleans: pa.Array) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = pc.fill_null(booleans, fill_value=False).to_numpy(
        zero_copy_only=False
    )
    return found


def _at(sequence: pa.Array, value: SequenceValue | None) -> NDArray[np.bool_]:
    if value is None:
        return np.zeros(len(sequence), np.bool_)
    return _mask(pc.equal(comparable(sequence), scalar_like(value, sequence)))


def _read_back(
    changes: Arrivals, rows: NDArray[np.intp], content: ComparedContent, read: ReadBack
) -> tuple[NDArray[np.intp], NDArray[np.bool_], NDArray[np.bool_]]:
    """The keys of these rows, whether each row is marked as deleted, and whether it is equal."""
    found, keys = changes.found, changes.found.key[rows]
    is_deleted = np.zeros(len(rows), np.bool_)
    is_same = np.ones(len(rows), np.bool_)
    flag = [] if content.deleted is None else [content.deleted]
    requested = [*content.fields, *flag]
    if not requested or not len(rows):
        return keys, is_deleted, is_same
    theirs = read(found.file[rows], found.position[rows], requested)
    for each in flag:
        is_deleted = _mask(theirs[each.name])
    ours = _conformed(changes.rows.take(pa.array(keys)), content.fields)
    for each, values in zip(content.fields, ours.columns, strict=True):
        is_same &= same_values(values, theirs[each.name])
    return keys, is_deleted, is_same


def _conformed(rows: pa.RecordBatch, fields: tuple[Field, ...]) -> pa.RecordBatch:
    """Converted to the table's types, like rows read from its files."""
    # A value that is still missing is null, even in a required column.
    relaxed = Schema(0, tuple(replace(each, required=False) for each in fields))
    chosen = rows.select([each.name for each in fields])
    return conform(chosen, relaxed, arrow_schema(relaxed))


@dataclass(frozen=True, slots=True)
class RowPositions:
    """For each row, the file and position of the row it takes columns from."""

    file: NDArray[np.int32]
    position: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RowCompleter:
    """Reads missing values; ``locations`` are the mirror's files by ordinal."""

    fields: tuple[Field, ...]
    locations: Mapping[int, str]
    inputs: InputFiles

    def complete(
        self, rows: pa.RecordBatch, missing: Mapping[int, NDArray[np.bool_]], sources: RowPositions
    ) -> pa.RecordBatch:
        """The rows with every missing value filled in from ``sources``."""
        needed = np.logical_or.reduce(list(missing.values()))
        if not needed.any():
            return rows
        fields = [each for each in self.fields if each.id in missing]
        lacking = np.flatnonzero(needed)
        found = self.read(sources.file[lacking], sources.position[lacking], fields)
        # Converted to the table's types, so that both parts of a column have the same.
        columns = dict(zip(rows.schema.names, _conformed(rows, self.fields).columns, strict=True))
        for each in fields:
            where = missing[each.id]
            at = np.arange(rows.num_rows)
            at[where] = rows.num_rows + np.flatnonzero(where[lacking])
            both = pa.concat_arrays([columns[each.name], found[each.name]])
            columns[each.name] = both.take(pa.array(at))
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def read(
        self, files: NDArray[np.int32], positions: NDArray[np.int64], fields: list[Field]
    ) -> dict[str, pa.Array]:
        """Columns of the rows at these positions, in their order; a file is opened once."""
        order = np.argsort(files, kind="stable")
        tables = []
        for ordinal in np.unique(files):
            of_file = order[files[order] == ordinal]
            location = self.locations[int(ordinal)]
            tables.append(read_rows(self.inputs, location, positions[of_file], fields))
        back = np.empty(len(order), np.intp)
        back[order] = np.arange(len(order))
        rows = pa.concat_tables(tables).take(pa.array(back))
        return {name: pa.concat_arrays(rows.column(name).chunks) for name in rows.column_names}
