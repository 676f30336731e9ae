"""Rows of a changelog from the records of a topic that tells changes.

Records are decoded one by one, because that is what JSON takes; everything else is done by column.
The rows of one key are ordered by position and ordinal: by the offset, or by a field with the
offset after it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.config.models.kafscale_source import Envelope, OnWrongValue
from frazil.model.change import Operation
from frazil.model.records.rejected_record import RejectedRecord, RejectReason
from frazil.sources.change_schema import COMMITTED_AT_TYPE, change_schema
from frazil.sources.kafscale.changes.change_event import (
    NO_TIME,
    ChangeEvent,
    PlainValues,
    WithoutChange,
)
from frazil.sources.kafscale.changes.debezium import DebeziumValues
from frazil.sources.kafscale.changes.record_keys import RecordKeys
from frazil.sources.kafscale.changes.refused_record import RefusedRecordError
from frazil.sources.kafscale.records.json_columns import (
    TIMESTAMPS,
    JsonColumns,
    ValueProblem,
    ValueProblemKind,
)
from frazil.sources.protocol import ChangeColumn, CountedOutcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from frazil.sources.kafscale.records.json_columns import JsonRow
    from frazil.sources.kafscale.records.topic_plan import TopicPlan

_MICROSECONDS_OF_MILLISECOND = 1000


@dataclass(frozen=True, eq=False, slots=True)
class TopicChanges:
    """The rows of some records as ``change_schema`` has them, and the records that gave none."""

    rows: pa.RecordBatch
    rejected: tuple[RejectedRecord, ...]
    counts: Mapping[CountedOutcome, int]


class ChangeEvents:
    """Reads the changes of one topic; light enough to be made by each task."""

    def __init__(self, plan: TopicPlan) -> None:
        self._plan = plan
        self._schema = change_schema(plan.columns, plan.key)
        self._columns = JsonColumns(plan.fields)
        self._keys = RecordKeys(plan, self._columns)
        self._is_debezium = plan.envelope is Envelope.DEBEZIUM
        values = DebeziumValues if self._is_debezium else PlainValues
        self._values: DebeziumValues | PlainValues = values(plan, self._columns)
        self._types = {each.name: at for at, each in enumerate(plan.fields)}
        names = {each.number: each.name for each in plan.columns}
        self._key = tuple(names[number] for number in plan.key)
        required = [each.name for each in plan.fields if each.required]
        self._has_required = bool(required)
        # These have a value in every row, so that none of them becomes null.
        self._indispensable = frozenset({*self._key, *required})

    def read(self, records: pa.RecordBatch, partition: int) -> TopicChanges:
        """The rows of these records, in their order."""
        made = _MadeRows()
        refused: dict[int, RefusedRecordError] = {}
        keys, values = records.column("key").to_pylist(), records.column("value").to_pylist()
        for at, (key, value) in enumerate(zip(keys, values, strict=True)):
            try:
                self._read_record(at, key, value, made)
            except RefusedRecordError as error:
                refused[at] = error
        incomplete = made.incomplete() if self._has_required else ()
        converted = self._columns.convert([each.row for each in made.events], incomplete=incomplete)
        arrays = dict(zip(self._types, converted.arrays, strict=True))
        nulled = self._refuse_values(converted.problems, made, refused)
        self._refuse_keys(arrays, made, refused)
        self._join_moves(arrays, made)
        rows = self._batch(arrays, made, records, partition)
        kept = made.kept(refused)
        if not kept.all():
            rows = rows.filter(pa.array(kept))
        counts = Counter({CountedOutcome.SKIPPED: made.skipped})
        counts[CountedOutcome.NULLED] = int(kept[nulled].sum())
        return TopicChanges(rows, self._rejected(refused, records, partition, values), +counts)

    def _read_record(
        self, at: int, key: bytes | None, value: bytes | None, made: _MadeRows
    ) -> None:
        event = self._values.read(value) if value else WithoutChange.TOMBSTONE
        if event is WithoutChange.TOMBSTONE:
            event = self._tombstone()
        if isinstance(event, WithoutChange):
            made.skipped += 1
            return
        operation, row = event.operation, event.row
        if operation is Operation.TRUNCATE:
            event = event.part(operation, self._columns.row_type())
        else:
            if None in self._keys.values(row):
                self._keys.complete(row, key)
            if operation is Operation.DELETE:
                # Without a key, the whole row says what was deleted.
                event = event.part(operation, self._keys.only(row) if self._key else row)
            elif event.before is not None and self._is_moved(event.before, row):
                made.add(at, event.part(Operation.DELETE, self._keys.only(event.before)))
                made.moved.append(len(made.events))
                event = event.part(Operation.INSERT, row)
        made.add(at, event)

    def _tombstone(self) -> ChangeEvent | WithoutChange:
        if not self._plan.sequence and self._key:
            return ChangeEvent(Operation.DELETE, self._columns.row_type())
        if self._is_debezium or not self._key:
            # It follows the event of the same delete.
            return WithoutChange.TOMBSTONE
        message = f"it is a tombstone without the field {'.'.join(self._plan.sequence)}."
        raise RefusedRecordError(message)

    def _is_moved(self, before: JsonRow, row: JsonRow) -> bool:
        """Whether this is another key, as far as the old row has one."""
        old = self._keys.values(before)
        return None not in old and old != self._keys.values(row)

    def _refuse_values(
        self,
        problems: Iterable[ValueProblem],
        made: _MadeRows,
        refused: dict[int, RefusedRecordError],
    ) -> NDArray[np.int64]:
        """The rows with values that are null now, one for each; others are refused."""
        nulled = []
        can_be_null = self._plan.on_wrong_value is OnWrongValue.NULL
        for each in problems:
            if each.kind is ValueProblemKind.MISSING:
                error = RefusedRecordError(f"column {each.column} is required and has no value.")
            elif can_be_null and each.column not in self._indispensable:
                nulled.append(each.row)
                continue
            else:
                message = f"column {each.column} cannot hold its value: {each.kind}."
                error = RefusedRecordError(message, RejectReason.UNREPRESENTABLE)
            refused.setdefault(made.records[each.row], error)
        return np.array(nulled, np.int64)

    def _refuse_keys(
        self,
        arrays: Mapping[str, pa.Array],
        made: _MadeRows,
        refused: dict[int, RefusedRecordError],
    ) -> None:
        for name in self._key:
            if not arrays[name].null_count:
                continue
            for row in np.flatnonzero(arrays[name].is_null().to_numpy(zero_copy_only=False)):
                if made.events[row].operation is not Operation.TRUNCATE:
                    error = RefusedRecordError(f"key column {name} has no value.")
                    refused.setdefault(made.records[row], error)

    def _join_moves(self, arrays: Mapping[str, pa.Array], made: _MadeRows) -> None:
        """Take back moves to the same key, which JSON may write in several ways."""
        if not made.moved:
            return
        new = np.array(made.moved, np.int64)
        is_same = np.ones(len(new), np.bool_)
        for name in self._key:
            array = arrays[name]
            equal = pc.equal(array.take(pa.array(new)), array.take(pa.array(new - 1)))
            is_same &= equal.fill_null(pa.scalar(value=False)).to_numpy(zero_copy_only=False)
        for row in new[is_same]:
            made.events[row] = made.events[row].part(Operation.UPDATE, made.events[row].row)
        made.taken_back.extend(new[is_same] - 1)
        made.moved[:] = new[~is_same]

    def _batch(
        self,
        arrays: Mapping[str, pa.Array],
        made: _MadeRows,
        records: pa.RecordBatch,
        partition: int,
    ) -> pa.RecordBatch:
        of_rows = np.array(made.records, np.int64)
        offsets = records.column("offset").to_numpy()[of_rows]
        if self._plan.sequence:
            positions = np.array([each.position for each in made.events], np.uint64)
            ordinals = offsets + 1
        else:
            positions, ordinals = offsets, np.full(len(of_rows), 1 + partition)
        stamps = records.column("timestamp_ms").to_numpy()[of_rows]
        times = np.array([each.committed_ms for each in made.events], np.int64)
        by_name = {
            ChangeColumn.OPERATION: pa.array([each.operation for each in made.events], pa.string()),
            ChangeColumn.POSITION: pa.array(positions.astype(np.uint64)),
            ChangeColumn.ORDINAL: pa.array(ordinals.astype(np.uint64)),
            ChangeColumn.COMMITTED_AT: _moments(np.where(times == NO_TIME, stamps, times)),
            ChangeColumn.ORIGIN: pc.binary_join_element_wise(
                f"{self._plan.topic}:{partition}", pa.array(offsets).cast(pa.string()), ":"
            ),
            ChangeColumn.PREVIOUS_KEY: self._previous_keys(arrays, made) if made.moved else None,
        }
        names = {str(each.number): each.name for each in self._plan.columns}
        columns = []
        for each in self._schema:
            found = arrays.get(names[each.name]) if each.name in names else by_name.get(each.name)
            if found is None:
                found = pa.nulls(len(of_rows), each.type)
            columns.append(found if found.type == each.type else found.cast(each.type))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _previous_keys(self, arrays: Mapping[str, pa.Array], made: _MadeRows) -> pa.Array:
        """The old key, which the row before it deletes, in rows that came under a new one."""
        type_ = self._schema.field(ChangeColumn.PREVIOUS_KEY).type
        is_moved = np.zeros(len(made.events), np.bool_)
        is_moved[made.moved] = True
        before = pa.array(np.arange(len(is_moved)) - 1, mask=~is_moved)
        members = [type_.field(index) for index in range(type_.num_fields)]
        keys = [
            arrays[name].take(before).cast(member.type)
            for name, member in zip(self._key, members, strict=True)
        ]
        return pa.StructArray.from_arrays(keys, fields=members, mask=pa.array(~is_moved))

    def _rejected(
        self,
        refused: Mapping[int, RefusedRecordError],
        records: pa.RecordBatch,
        partition: int,
        values: Sequence[bytes | None],
    ) -> tuple[RejectedRecord, ...]:
        offsets = records.column("offset")
        return tuple(
            RejectedRecord(
                table=self._plan.topic,
                partition=str(partition),
                offset=offsets[at].as_py(),
                reason=refused[at].reason,
                message=str(refused[at]),
                payload=values[at] or b"",
            )
            for at in sorted(refused)
        )


@dataclass(slots=True)
class _MadeRows:
    """Rows before their values are converted, one for each of ``events``.

    ``records`` are the places of their records. ``moved`` are rows that came under a new key: the
    one before each deletes the old key, unless that was ``taken_back``.
    """

    events: list[ChangeEvent] = field(default_factory=list)
    records: list[int] = field(default_factory=list)
    moved: list[int] = field(default_factory=list)
    taken_back: list[int] = field(default_factory=list)
    skipped: int = 0

    def add(self, at: int, event: ChangeEvent) -> None:
        self.events.append(event)
        self.records.append(at)

    def incomplete(self) -> frozenset[int]:
        """The rows that need not have what is required."""
        without = (Operation.DELETE, Operation.TRUNCATE)
        return frozenset(at for at, each in enumerate(self.events) if each.operation in without)

    def kept(self, refused: Mapping[int, RefusedRecordError]) -> NDArray[np.bool_]:
        """Whether a row is one: none is of a record that was refused, not even in part."""
        kept = np.ones(len(self.events), np.bool_)
        kept[self.taken_back] = False
        if refused:
            kept &= ~np.isin(np.array(self.records, np.int64), list(refused))
        return kept


def _moments(milliseconds: NDArray[np.int64]) -> pa.Array:
    """Null where it is not in the years that a column shows."""
    first = TIMESTAMPS.start // _MICROSECONDS_OF_MILLISECOND
    is_shown = (milliseconds >= first) & (
        milliseconds < TIMESTAMPS.stop // _MICROSECONDS_OF_MILLISECOND
    )
    microseconds = np.where(is_shown, milliseconds, 0) * _MICROSECONDS_OF_MILLISECOND
    return pa.array(microseconds, mask=~is_shown).view(COMMITTED_AT_TYPE)
