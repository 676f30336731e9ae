"""Events as the server takes them apart, turned into rows of changes: columns, never row by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.codec.pgcopy.values import Wire, convert_binary
from frazil.codec.pgtext.grammar import octets
from frazil.model.change import Operation
from frazil.model.policy import OnUnrepresentable
from frazil.model.postgres.types import ColumnPlan, Form
from frazil.model.records.rejected_record import RejectReason
from frazil.model.schema.types import Primitive
from frazil.sources.buffer.reading.event_queries import (
    FIRST_VALUE,
    ID,
    LSN,
    MISSING,
    OPERATION,
    ORIGIN,
    PROBLEM,
    PROBLEMS,
    TIME,
)
from frazil.sources.buffer.reading.json_text import convert_text
from frazil.sources.buffer.reading.shape import source_columns
from frazil.sources.change_schema import UNCHANGED_TYPE, change_schema
from frazil.sources.protocol import ChangeColumn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from frazil.codec.pgcopy.fields import BinaryColumn
    from frazil.sources.buffer.reading.shape import EventColumn, GrownShape

    Mask = NDArray[np.bool_]

_TIME: Final = ColumnPlan(
    "event_time", "timestamptz", Primitive.TIMESTAMPTZ, Form.TIMESTAMPTZ, OnUnrepresentable.NULL
)
# Two rows of a key change, one after the other.
_ROWS_OF_EVENT: Final = 2
_ABSENT: Final = ord("0")
_NO_SUCH_TIME: Final = "its time is not between the years 1 and 9999"


@dataclass(frozen=True, slots=True)
class RejectedEvent:
    """An event that is no row, and why."""

    id: int
    reason: RejectReason
    message: str


@dataclass(frozen=True, eq=False, slots=True)
class BuiltRows:
    """Rows, the events that are none, and how many values became null by policy."""

    rows: pa.RecordBatch
    rejected: list[RejectedEvent]
    nulled: int


class _Faults:
    """The first thing that is wrong with each event."""

    def __init__(self, count: int) -> None:
        self._codes = np.zeros(count, np.int32)
        self._found: list[tuple[RejectReason, str]] = []

    def add(self, where: Mask, reason: RejectReason, message: str) -> None:
        """Something is wrong with these."""
        if where.any():
            self._found.append((reason, message))
            self._codes[where & (self._codes == 0)] = len(self._found)

    @property
    def good(self) -> Mask:
        """The events that nothing is wrong with."""
        good: Mask = self._codes == 0
        return good

    def rejected(self, ids: NDArray[np.int64]) -> list[RejectedEvent]:
        """The others."""
        return [
            RejectedEvent(int(ids[at]), *self._found[self._codes[at] - 1])
            for at in np.flatnonzero(self._codes)
        ]


class RowBuilder:
    """Builds rows of one shape; lives in a task."""

    def __init__(self, grown: GrownShape) -> None:
        self._shape = grown.shape
        by_number = {each.number: each for each in grown.shape.columns}
        self._key = tuple(by_number[number] for number in grown.shape.key)
        self._schema = change_schema(source_columns(grown.shape), grown.shape.key)

    def build(self, fields: Sequence[BinaryColumn], first_old: int) -> BuiltRows:
        """The rows of these events; old values of the key begin at ``first_old``."""
        faults = _Faults(len(fields[ID]))
        problems = _texts(fields[PROBLEM])
        for code in pc.unique(problems.drop_null()).to_pylist():
            where = _mask(pc.equal(problems, code))
            faults.add(where, RejectReason.INVALID, PROBLEMS[int(code)])
        times = convert_binary(fields[TIME], _TIME, Wire.TIMESTAMP).values
        unknown = fields[TIME].is_known & ~_mask(times.is_valid())
        faults.add(unknown, RejectReason.UNREPRESENTABLE, _NO_SUCH_TIME)
        event = _Event(fields, times)
        values, nulled = self._values(fields, faults)
        olds = self._olds(fields[first_old:], faults)
        changed = self._settle_key(event, values, olds, faults)
        unchanged = self._unchanged(_texts(fields[MISSING]))
        change = _Change(values, olds, changed, unchanged)
        rows = self._assemble(event, change, faults.good)
        return BuiltRows(rows, faults.rejected(event.ids), nulled)

    def _values(
        self, fields: Sequence[BinaryColumn], faults: _Faults
    ) -> tuple[dict[int, pa.Array], int]:
        values, nulled = {}, 0
        for column, text in zip(self._shape.columns, fields[FIRST_VALUE:], strict=False):
            values[column.number], misfits = convert_text(_texts(text), column.type)
            if misfits is None:
                continue
            if column.nulls_misfits:
                nulled += int(np.count_nonzero(misfits))
            else:
                faults.add(misfits, RejectReason.UNREPRESENTABLE, _misfit(column))
        return values, nulled

    def _olds(self, fields: Sequence[BinaryColumn], faults: _Faults) -> dict[int, pa.Array]:
        olds = {}
        for column, text in zip(self._key, fields, strict=False):
            olds[column.number], misfits = convert_text(_texts(text), column.type)
            if misfits is not None:
                faults.add(misfits, RejectReason.UNREPRESENTABLE, _misfit(column))
        return olds

    def _settle_key(
        self,
        event: _Event,
        values: dict[int, pa.Array],
        olds: Mapping[int, pa.Array],
        faults: _Faults,
    ) -> Mask:
        """Complete keys from old images; whether an UPDATE has changed its key."""
        changed = np.zeros(len(event.ids), np.bool_)
        for column in self._key:
            old = olds[column.number]
            values[column.number] = pc.coalesce(values[column.number], old)
            new = values[column.number]
            changed |= _mask(pc.not_equal(old, new))
            lacking = ~_mask(new.is_valid()) & ~event.is_(Operation.TRUNCATE)
            faults.add(lacking, RejectReason.INVALID, f"key column {column.name!r} has no value")
        return changed

    def _unchanged(self, missing: pa.StringArray) -> pa.ListArray:
        """The numbers of columns that an UPDATE lacks."""
        count, width = len(missing), len(self._shape.columns)
        if missing.null_count == count:
            return pa.nulls(count, UNCHANGED_TYPE)
        _, digits = octets(missing.drop_null())
        is_key = np.isin([each.number for each in self._shape.columns], self._shape.key)
        # Tables with fewer columns than others that are read with them have digits left over.
        absent = (digits.reshape(count - missing.null_count, -1)[:, :width] == _ABSENT) & ~is_key
        lengths = np.zeros(count, np.int64)
        lengths[_mask(missing.is_valid())] = absent.sum(axis=1)
        numbers = np.array([each.number for each in self._shape.columns], np.int32)
        offsets = np.zeros(count + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        found = pa.array(numbers[np.nonzero(absent)[1]], pa.int32())
        return pa.ListArray.from_arrays(
            pa.array(offsets), found, type=UNCHANGED_TYPE, mask=pa.array(lengths == 0)
        )

    def _assemble(
        self,
        event: _Event,
        change: _Change,
        good: Mask,
    ) -> pa.RecordBatch:
        values, changed = change.values, change.changed
        ordinals = (event.ids * _ROWS_OF_EVENT).astype(np.uint64)
        operations = event.operations
        if changed.any():
            operations = pc.if_else(pa.array(changed), Operation.INSERT.value, operations)
        columns: dict[str, pa.Array] = {str(number): each for number, each in values.items()}
        columns |= {
            ChangeColumn.OPERATION: operations,
            ChangeColumn.POSITION: pa.array(event.positions),
            # The new half of a key change is behind the old one.
            ChangeColumn.ORDINAL: pa.array(ordinals + changed.astype(np.uint64)),
            ChangeColumn.COMMITTED_AT: event.times,
            ChangeColumn.ORIGIN: event.origins,
            ChangeColumn.UNCHANGED: change.unchanged,
        }
        if self._key:
            columns[ChangeColumn.PREVIOUS_KEY] = self._previous(change)
        rows = self._batch(columns).filter(pa.array(good))
        departed = changed & good
        if not departed.any():
            return rows
        old = self._departures(columns, change, ordinals).filter(pa.array(departed))
        return pa.concat_batches([rows, old])

    def _previous(self, change: _Change) -> pa.StructArray:
        members = [change.old_key(each.number) for each in self._key]
        names = [str(each.number) for each in self._key]
        return pa.StructArray.from_arrays(members, names=names, mask=pa.array(~change.changed))

    def _departures(
        self,
        columns: Mapping[str, pa.Array],
        change: _Change,
        ordinals: NDArray[np.uint64],
    ) -> pa.RecordBatch:
        """The old halves of key changes: a DELETE of the old key."""
        count = len(ordinals)
        key = {str(each.number): change.old_key(each.number) for each in self._key}
        others = {str(number): pa.nulls(count, it.type) for number, it in change.values.items()}
        old = dict(columns) | others | key
        old[ChangeColumn.OPERATION] = pa.repeat(Operation.DELETE.value, count)
        old[ChangeColumn.ORDINAL] = pa.array(ordinals)
        old[ChangeColumn.UNCHANGED] = pa.nulls(count, UNCHANGED_TYPE)
        previous = columns[ChangeColumn.PREVIOUS_KEY]
        old[ChangeColumn.PREVIOUS_KEY] = pa.nulls(count, previous.type)
        return self._batch(old)

    def _batch(self, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
        # Rejected events have anything in them, also where rows have no nulls.
        schema = pa.schema([each.with_nullable(nullable=True) for each in self._schema])
        arrays = [columns[each.name] for each in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


@dataclass(frozen=True, eq=False, slots=True)
class _Change:
    """The values of events, and what became of their keys."""

    values: Mapping[int, pa.Array]
    olds: Mapping[int, pa.Array]
    changed: Mask
    unchanged: pa.ListArray

    def old_key(self, number: int) -> pa.Array:
        """A column of the key as it was; what the old image lacks has not changed."""
        return pc.coalesce(self.olds[number], self.values[number])


class _Event:
    """What each event is, next to its values."""

    def __init__(self, fields: Sequence[BinaryColumn], times: pa.Array) -> None:
        self.ids = fields[ID].numbers(">i8").astype(np.int64)
        known = fields[LSN].is_known
        self.positions = np.zeros(len(self.ids), np.uint64)
        rows = np.flatnonzero(known)
        self.positions[rows] = fields[LSN].numbers(">u8", rows=rows).astype(np.uint64)
        self.origins = _texts(fields[ORIGIN])
        self.operations = _texts(fields[OPERATION])
        self.times = times

    def is_(self, operation: Operation) -> Mask:
        """Which events are of this operation."""
        return _mask(pc.equal(self.operations, operation.value))


def _misfit(column: EventColumn) -> str:
    return f"column {column.name!r} has a value that a {column.type} cannot hold"


def _texts(field: BinaryColumn) -> pa.StringArray:
    return field.octets().cast(pa.string())


def _mask(values: pa.BooleanArray) -> Mask:
    """Null is no."""
    return np.asarray(pc.fill_null(values, fill_value=False))
