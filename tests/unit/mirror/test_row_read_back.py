"""A row that is read back from its file is the row that was written, whatever is nested in it.

The schema may have moved on since: members renamed, reordered, widened, dropped, added with an
initial default. Files are written as the writer does it; no JVM.
"""

from __future__ import annotations

import io
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.clients.iceberg.file_system import InputFiles
from frazil.clients.iceberg.write.arrow_schema import arrow_schema, parquet_schema
from frazil.clients.iceberg.write.conforming import conform, finished
from frazil.codec.iceberg_json import default_to_json
from frazil.merge.folding.change_rows import same_values
from frazil.merge.writing.mirror_rows import RowCompleter, RowPositions
from frazil.mirror.row_reader import read_rows
from frazil.model.schema.types import (
    Decimal,
    Field,
    List,
    Map,
    Primitive,
    Schema,
    Struct,
    list_of,
    map_of,
)
from tests.support.sampling import examples
from tests.unit.iceberg_writer.schemas import batch_of, scalars, schemas, values, values_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from frazil.model.schema.types import Type

pytestmark = pytest.mark.fault("N28")

P = Primitive
# Their defaults have no form in Iceberg's JSON that we write.
WITH_DEFAULT = [each for each in P if not each.endswith("_ns")]

WIDER = {P.INT: P.LONG, P.FLOAT: P.DOUBLE}


class OneFile:
    """The batch as a data file of three rows a group; locations do not matter."""

    def __init__(self, schema: Schema, columns: list[list[Any]]) -> None:
        rows = conform(batch_of(schema, columns), schema, arrow_schema(schema))
        target = parquet_schema(schema)
        written = io.BytesIO()
        completed = finished(pa.Table.from_batches([rows]), schema, target)
        pq.write_table(completed, written, row_group_size=3)
        self._bytes = written.getvalue()

    def open(self, _location: str) -> io.BytesIO:
        return io.BytesIO(self._bytes)


class Evolution:
    """Draws what a schema may become; new members have ids that no field had."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.ids: Iterator[int] = iter(range(10_000, 20_000))
        # Values that rows of older files show in a new member, by its id.
        self.defaults: dict[int, Any] = {}

    def field(self, old: Field) -> Field:
        renamed = self.draw(st.sampled_from([old.name, f"{old.name}_2", f"{old.name} ü.,"]))
        return replace(old, name=renamed, type=self.type(old.type))

    def type(self, old: Type) -> Type:
        match old:
            case Struct(members):
                kept = [self.field(each) for each in members if self.draw(st.booleans())]
                kept += [self.added() for _ in range(self.draw(st.integers(0, 2)))]
                made = kept or [self.field(members[0])]
                return Struct(tuple(self.draw(st.permutations(made))))
            case List(element):
                return replace(old, element=replace(element, type=self.type(element.type)))
            case Map(_, value):
                return replace(old, value=replace(value, type=self.type(value.type)))
            case P.INT | P.FLOAT:
                return self.draw(st.sampled_from([old, WIDER[old]]))
            case Decimal(precision, scale):
                return Decimal(self.draw(st.integers(precision, 38)), scale)
            case _:
                return old

    def added(self) -> Field:
        number = next(self.ids)
        if self.draw(st.booleans()):
            plain: list[Type] = [P.STRING, list_of(next(self.ids), P.INT)]
            return Field(number, f"n{number}", self.draw(st.sampled_from(plain)))
        type_ = self.draw(scalars(WITH_DEFAULT))
        value = python_value(self.draw(values_of(type_)), type_)
        scalar = pa.scalar(value, arrow_type(type_))
        default = default_to_json(scalar, type_)
        if default is not None:
            self.defaults[number] = value
        return Field(number, f"n{number}", type_, default is not None, initial_default=default)


# Lives as long as the process: Arrow's own threads give memory back after the read has ended.
COUNTING_POOL = pa.proxy_memory_pool(pa.default_memory_pool())


def arrow_type(type_: Type) -> pa.DataType:
    return arrow_schema(Schema(0, (Field(1, "c", type_),))).field(0).type


def python_value(value: Any, type_: Type) -> Any:
    """What Arrow takes: a drawn uuid is text."""
    return uuid.UUID(value).bytes if type_ is P.UUID and value is not None else value


def seen(value: Any, old: Field, new: Field, defaults: dict[int, Any]) -> Any:
    """What a value of an older file must be under the newer schema."""
    if value is None:
        return None
    match old.type, new.type:
        case Struct(members), Struct(wanted):
            before = {each.id: each for each in members}
            return {
                parquet_like(new, at): seen(
                    value[before[each.id].name], before[each.id], each, defaults
                )
                if each.id in before
                else defaults.get(each.id)
                for at, each in enumerate(wanted)
            }
        case List(element), List(wanted):
            return [seen(each, element, wanted, defaults) for each in value]
        case Map(key, item), Map(_, wanted):
            pairs = [(python_value(one, key.type), other) for one, other in value]
            return [(one, seen(other, item, wanted, defaults)) for one, other in pairs]
        case _:
            return python_value(value, old.type)


def parquet_like(struct: Field, at: int) -> str:
    """The member's name as Arrow has it."""
    return str(arrow_type(struct.type).field(at).name)


def assert_same(found: pa.Array, expected: pa.Array) -> None:
    assert found.type == expected.type
    assert same_values(found, expected).all(), (found.to_pylist(), expected.to_pylist())
    found.validate(full=True)


@st.composite
def read_backs(
    draw: st.DrawFn,
) -> tuple[Schema, list[list[Any]], tuple[Field, ...], list[list[Any]]]:
    """A file's schema and columns, what the fields are now, and what they must show."""
    old = draw(schemas(most=3, deep=3))
    count = draw(st.integers(1, 8))
    columns = [
        draw(st.lists(values(each), min_size=count, max_size=count)) for each in old.fields[1:]
    ]
    evolution = Evolution(draw)
    new = tuple(evolution.field(each) for each in old.fields[1:])
    shown = [
        [seen(value, before, after, evolution.defaults) for value in column]
        for column, before, after in zip(columns, old.fields[1:], new, strict=True)
    ]
    return old, [list(range(count)), *columns], new, shown


@given(read_backs(), st.data())
@examples(150)
def test_rows_come_back_as_they_were(
    case: tuple[Schema, list[list[Any]], tuple[Field, ...], list[list[Any]]], data: st.DataObject
) -> None:
    old, columns, fields, shown = case
    files: Any = OneFile(old, columns)
    rows = st.lists(st.integers(0, len(columns[0]) - 1), min_size=1, max_size=10)
    positions = np.array(data.draw(rows))
    found = read_rows(files, "file", positions, fields)
    for field, values_now in zip(fields, shown, strict=True):
        expected = pa.array([values_now[at] for at in positions], arrow_type(field.type))
        assert_same(found.column(field.name).combine_chunks(), expected)
    completed(files, fields, shown, positions.tolist())


def completed(
    files: Any, fields: tuple[Field, ...], shown: list[list[Any]], positions: Sequence[int]
) -> None:
    """Every second row brings its values, the others take them from the file."""
    where = np.arange(len(positions)) % 2 == 1
    arrays = [
        pa.array(
            [
                None if left_out else column[at]
                for at, left_out in zip(positions, where, strict=True)
            ],
            arrow_type(field.type),
        )
        for column, field in zip(shown, fields, strict=True)
    ]
    batch = pa.RecordBatch.from_arrays(arrays, names=[each.name for each in fields])
    sources = RowPositions(np.zeros(len(positions), np.int32), np.asarray(positions, np.int64))
    completer = RowCompleter(tuple(fields), {0: "file"}, files)
    completed = completer.complete(batch, {each.id: where for each in fields}, sources)
    for field, column in zip(fields, shown, strict=True):
        expected = pa.array([column[at] for at in positions], arrow_type(field.type))
        assert_same(completed.column(field.name), expected)


NESTED_MAP = map_of(3, P.STRING, 4, P.INT)


@pytest.mark.parametrize(
    ("type_", "written"),
    [
        (NESTED_MAP, [None, [], [("a", None)], [("b", 1)]]),
        (Struct((Field(2, "m", NESTED_MAP),)), [None, {"m": None}, {"m": []}, {"m": [("a", 1)]}]),
        (list_of(2, NESTED_MAP), [None, [], [None, []], [[("a", None)], None]]),
        (map_of(5, P.UUID, 2, NESTED_MAP), [None, [], [(b"x" * 16, None)], [(b"y" * 16, [])]]),
        (list_of(2, list_of(3, P.INT)), [None, [], [None, []], [[None, 1]]]),
    ],
    ids=str,
)
def test_null_and_empty_stay_distinct(type_: Type, written: list[Any]) -> None:
    field = Field(1, "c", type_)
    given_ = pa.array(written, arrow_type(type_))
    schema = Schema(0, (field,))
    table = finished(pa.table([given_], ["c"]), schema, parquet_schema(schema))
    stored = io.BytesIO()
    pq.write_table(table, stored)

    class Stored:
        def open(self, _location: str) -> io.BytesIO:
            return io.BytesIO(stored.getvalue())

    files: Any = Stored()
    found = read_rows(files, "file", np.array([3, 2, 1, 0]), [field]).column("c")
    assert found.to_pylist() == written[::-1]


@pytest.mark.parametrize("around", ["struct", "list", "map"])
def test_a_younger_member_shows_its_initial_default_where_its_struct_is(around: str) -> None:
    old = Struct((Field(2, "a", P.INT),))
    new = Struct((Field(9, "late", P.TIME, initial_default="12:34:56.789"), *old.fields))
    wrapped: dict[str, Any] = {
        "struct": (lambda type_: type_, lambda value: value),
        "list": (lambda type_: list_of(3, type_), lambda value: [value]),
        "map": (lambda type_: map_of(3, P.STRING, 4, type_), lambda value: [("k", value)]),
    }
    type_of, value_of = wrapped[around]
    schema = Schema(0, (Field(7, "id", P.LONG), Field(1, "c", type_of(old))))
    files: Any = OneFile(schema, [[0, 1, 2], [value_of({"a": 5}), value_of(None), None]])
    fields = [Field(1, "c", type_of(new))]
    found = read_rows(files, "file", np.array([0, 1, 2]), fields).column("c").combine_chunks()
    micros = 45_296_789_000
    expected = [value_of({"late": micros, "a": 5}), value_of(None), None]
    assert_same(found, pa.array(expected, arrow_type(fields[0].type)))


def test_rows_of_many_row_groups_are_read_with_the_memory_of_one(tmp_path: Path) -> None:
    field = Field(1, "c", P.BINARY)
    path = tmp_path / "file.parquet"
    groups, rows = 24, 4_000
    with pq.ParquetWriter(path, parquet_schema(Schema(0, (field,)))) as writer:
        for group in range(groups):
            # Half a kilobyte each, and no two alike.
            values_ = pa.array([f"{group:04d}-{at:04d}".encode() * 56 for at in range(rows)])
            writer.write_table(pa.table([values_], schema=writer.schema))
    positions = np.random.default_rng(1).permutation(groups * rows)[:1_000]
    usual = pa.default_memory_pool()
    pa.set_memory_pool(COUNTING_POOL)
    try:
        found = read_rows(InputFiles({}), str(path), positions, [field]).column("c").to_pylist()
    finally:
        pa.set_memory_pool(usual)
    assert [each[:9].decode() for each in found] == [
        f"{at // rows:04d}-{at % rows:04d}" for at in positions.tolist()
    ]
    whole = groups * rows * 9 * 56
    assert COUNTING_POOL.max_memory() < whole // 3
