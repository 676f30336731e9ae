"""Columns from the JSON values of records: by name, exact, and with a list of what did not fit.

What KafScale's own processor accepts is accepted, and what it gets wrong is right: integers are
exact up to 64 bits and never wrap, timestamps are not a thousand times too small.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.config.models.kafscale_source import TopicColumnType as Type

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    from frazil.config.models.kafscale_source import TopicColumn

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MICROSECONDS_OF_MILLISECOND = 1000
_MICROSECONDS_OF_DAY = 86_400_000_000
# What Go's time.RFC3339 reads; a fraction of any length.
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_INT, _LONG = range(-(1 << 31), 1 << 31), range(-(1 << 63), 1 << 63)
# The years 1 to 9999, which is what every reader of a table can show.
_DAYS = range((date.min - _EPOCH.date()).days, (date.max - _EPOCH.date()).days + 1)
TIMESTAMPS = range(_DAYS.start * _MICROSECONDS_OF_DAY, _DAYS.stop * _MICROSECONDS_OF_DAY)

# A decoded record.
JsonRow: TypeAlias = msgspec.Struct

ARROW_TYPES: Mapping[Type, pa.DataType] = {
    Type.BOOLEAN: pa.bool_(),
    Type.INT: pa.int32(),
    Type.LONG: pa.int64(),
    Type.FLOAT: pa.float32(),
    Type.DOUBLE: pa.float64(),
    Type.STRING: pa.string(),
    Type.BINARY: pa.binary(),
    Type.TIMESTAMP: pa.timestamp("us"),
    Type.DATE: pa.date32(),
}
# Values of these are what Arrow takes as they are, if they are in range.
_SAME: Mapping[Type, frozenset[type]] = {
    Type.BOOLEAN: frozenset({bool, type(None)}),
    Type.INT: frozenset({int, type(None)}),
    Type.LONG: frozenset({int, type(None)}),
    Type.DOUBLE: frozenset({int, float, type(None)}),
    Type.STRING: frozenset({str, type(None)}),
}


class Microseconds(int):
    """A moment in the unit that a timestamp column has; other numbers are milliseconds."""


# How many microseconds numbers count, if all of them are of one kind.
_UNITS = {frozenset({int}): _MICROSECONDS_OF_MILLISECOND, frozenset({Microseconds}): 1}
_NULL = {type(None)}


class ValueProblemKind(StrEnum):
    """Why a record has no value for a column; the words are those of metrics and dead letters."""

    NOT_JSON = "not_a_json_object"
    WRONG_TYPE = "wrong_type"
    OUT_OF_RANGE = "out_of_range"
    MISSING = "required_value_missing"


@dataclass(frozen=True, slots=True)
class ValueProblem:
    """What is wrong with one record; ``column`` is None for all of them."""

    row: int
    column: str | None
    kind: ValueProblemKind


@dataclass(frozen=True, eq=False, slots=True)
class ReadColumns:
    """Arrays in the order of the columns, null where there is a problem."""

    arrays: tuple[pa.Array, ...]
    problems: tuple[ValueProblem, ...]


class JsonColumns:
    """Reads the declared columns of one topic; light enough to be made by each task.

    A decoded record has an attribute for each of them, as ``attribute`` names it, and None where
    there is no value. Whoever knows better may set one before it is converted: see
    ``Microseconds``, and bytes for a binary column.
    """

    def __init__(self, columns: Sequence[TopicColumn]) -> None:
        self._columns = tuple(columns)
        fields = [f"f{at}" for at in range(len(self._columns))]
        struct = msgspec.defstruct(
            "Values",
            [(name, Any, None) for name in fields],
            rename={name: each.name for name, each in zip(fields, self._columns, strict=True)},
            # They hold no reference to each other.
            gc=False,
        )
        self._fields = tuple(fields)
        self.row_type: type[JsonRow] = struct
        """What decoded records are; without arguments, one without any value."""
        self.decode: Callable[[bytes | msgspec.Raw], JsonRow] = msgspec.json.Decoder(struct).decode
        """The values of one record; ValueError or RecursionError if it is no JSON object."""
        self._nothing = struct()

    def attribute(self, name: str) -> str:
        """Where a decoded record has the column with this name; KeyError for any other."""
        for field, column in zip(self._fields, self._columns, strict=True):
            if column.name == name:
                return field
        raise KeyError(name)

    def read(self, values: pa.BinaryArray) -> ReadColumns:
        """The columns of these records; a null or empty value has nulls only."""
        problems: list[ValueProblem] = []
        rows = [self._row(at, value, problems) for at, value in enumerate(values.to_pylist())]
        read = self.convert(rows, incomplete={each.row for each in problems})
        return ReadColumns(read.arrays, (*problems, *read.problems))

    def convert(self, rows: Sequence[JsonRow], *, incomplete: Container[int] = ()) -> ReadColumns:
        """The columns of decoded records; the ``incomplete`` ones may lack what is required."""
        problems: list[ValueProblem] = []
        arrays = []
        for name, column in zip(self._fields, self._columns, strict=True):
            found = [getattr(row, name) for row in rows]
            arrays.append(_to_array(found, column, problems))
            if column.required:
                absent = (at for at, value in enumerate(found) if value is None)
                missing = ValueProblemKind.MISSING
                problems += [
                    ValueProblem(at, column.name, missing) for at in absent if at not in incomplete
                ]
        return ReadColumns(tuple(arrays), tuple(problems))

    def _row(self, at: int, value: bytes | None, problems: list[ValueProblem]) -> JsonRow:
        if not value:
            return self._nothing
        try:
            return self.decode(value)
        except (ValueError, RecursionError):
            problems.append(ValueProblem(at, None, ValueProblemKind.NOT_JSON))
            return self._nothing


class _WrongValueError(Exception):
    def __init__(self, kind: ValueProblemKind) -> None:
        super().__init__(kind)
        self.kind = kind


def _to_array(values: list[object], column: TopicColumn, problems: list[ValueProblem]) -> pa.Array:
    arrow_type = ARROW_TYPES[column.type]
    types = set(map(type, values))
    try:
        if types <= _SAME.get(column.type, frozenset()):
            return pa.array(values, arrow_type)
        if column.type is Type.TIMESTAMP and (unit := _UNITS.get(frozenset(types - _NULL))):
            return _to_moments(pa.array(values, pa.int64()), unit)
    except (pa.ArrowInvalid, OverflowError):
        # One of them is out of range: which one is found below.
        pass
    converted: list[object] = []
    convert = _CONVERSIONS[column.type]
    for at, value in enumerate(values):
        try:
            converted.append(None if value is None else convert(value))
        except _WrongValueError as error:
            converted.append(None)
            problems.append(ValueProblem(at, column.name, error.kind))
    return pa.array(converted, arrow_type)


def _to_moments(numbers: pa.Int64Array, unit: int) -> pa.Array:
    """Timestamps from numbers that count so many microseconds; OverflowError for later ones."""
    ends = pc.min_max(numbers).as_py()
    if not all(each * unit in TIMESTAMPS for each in ends.values()):
        raise OverflowError
    return pc.multiply(numbers, unit).view(ARROW_TYPES[Type.TIMESTAMP])


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise _WrongValueError(ValueProblemKind.WRONG_TYPE)


def _number(value: object) -> int | float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise _WrongValueError(ValueProblemKind.WRONG_TYPE)


def _integer(within: range) -> Callable[[object], int]:
    def convert(value: object) -> int:
        number = _number(value)
        if within.start <= number < within.stop:
            # As the processor does, a fraction is cut off.
            return int(number)
        raise _WrongValueError(ValueProblemKind.OUT_OF_RANGE)

    return convert


def _double(value: object) -> float:
    try:
        return float(_number(value))
    except OverflowError:
        raise _WrongValueError(ValueProblemKind.OUT_OF_RANGE) from None


def _float(value: object) -> float:
    number = _double(value)
    with np.errstate(over="ignore"):
        if math.isinf(np.float32(number)):
            raise _WrongValueError(ValueProblemKind.OUT_OF_RANGE)
    return number


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise _WrongValueError(ValueProblemKind.WRONG_TYPE)


def _octets(value: object) -> bytes:
    # JSON has no bytes: these were decoded already.
    return value if isinstance(value, bytes) else _text(value).encode()


def _timestamp(value: object) -> int:
    """Microseconds since 1970; a number has milliseconds."""
    if isinstance(value, Microseconds):
        return _integer(TIMESTAMPS)(value)
    if not isinstance(value, str):
        return _integer(TIMESTAMPS)(_number(value) * _MICROSECONDS_OF_MILLISECOND)
    return (_moment(value) - _EPOCH) // _MICROSECOND


def _date(value: object) -> int:
    """Days since 1970; a number has days."""
    if not isinstance(value, str):
        return _integer(_DAYS)(value)
    if _DAY.fullmatch(value):
        try:
            return (date.fromisoformat(value) - _EPOCH.date()).days
        except ValueError:
            raise _WrongValueError(ValueProblemKind.OUT_OF_RANGE) from None
    return (_moment(value) - _EPOCH).days


def _moment(text: str) -> datetime:
    if not _RFC_3339.fullmatch(text):
        raise _WrongValueError(ValueProblemKind.WRONG_TYPE)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise _WrongValueError(ValueProblemKind.OUT_OF_RANGE) from None


_CONVERSIONS: Mapping[Type, Callable[[object], object]] = {
    Type.BOOLEAN: _boolean,
    Type.INT: _integer(_INT),
    Type.LONG: _integer(_LONG),
    Type.FLOAT: _float,
    Type.DOUBLE: _double,
    Type.STRING: _text,
    Type.BINARY: _octets,
    Type.TIMESTAMP: _timestamp,
    Type.DATE: _date,
}
