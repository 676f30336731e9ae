from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.clients.iceberg.write.arrow_schema import arrow_schema, parquet_name, parquet_schema
from frazil.clients.iceberg.write.conforming import conform, finished
from frazil.errors import UnrepresentableValueError, UnsupportedSchemaChangeError
from frazil.model.schema.types import (
    Decimal,
    Field,
    Fixed,
    Primitive,
    Schema,
    Struct,
    list_of,
    map_of,
)
from tests.support.sampling import examples
from tests.unit.iceberg_writer.schemas import batches, schemas

if TYPE_CHECKING:
    from frazil.model.schema.types import Type

P = Primitive
CANARY = "c0ffee-canary"


def fitted(type_: Type, array: pa.Array, *, required: bool = False) -> pa.Array:
    schema = Schema(0, (Field(1, "c", type_, required),))
    batch = pa.RecordBatch.from_arrays([array], names=["c"])
    return conform(batch, schema, arrow_schema(schema)).column(0)


def refused(type_: Type, array: pa.Array, *, required: bool = False) -> str:
    with pytest.raises(UnrepresentableValueError) as refusal:
        fitted(type_, array, required=required)
    return str(refusal.value)


@pytest.mark.parametrize(
    ("type_", "array"),
    [
        (P.INT, pa.array([1, None], pa.int16())),
        (P.LONG, pa.array([1, None], pa.int32())),
        (P.DOUBLE, pa.array([1.5, None], pa.float32())),
        (P.STRING, pa.array(["a", None], pa.large_string())),
        (P.STRING, pa.array(["a", None]).dictionary_encode()),
        (P.BINARY, pa.array([b"a", None], pa.large_binary())),
        (Decimal(9, 2), pa.array([None, 1], pa.decimal128(8, 2))),
        (P.TIMESTAMPTZ, pa.array([1, None], pa.timestamp("us", tz="Europe/Berlin"))),
        (Fixed(2), pa.array([b"ab", None], pa.binary())),
        (P.STRING, pa.nulls(2)),
    ],
    ids=str,
)
def test_what_loses_nothing_is_converted(type_: Type, array: pa.Array) -> None:
    result = fitted(type_, array)
    expected = arrow_schema(Schema(0, (Field(1, "c", type_),))).field(0).type
    assert result.type == expected
    found = [
        each.value if isinstance(each, pa.TimestampScalar) else each.as_py() for each in result
    ]
    given_ = [
        each.value if isinstance(each, pa.TimestampScalar) else each.as_py() for each in array
    ]
    assert found == given_


def test_uuids_come_as_text_as_bytes_or_as_they_are() -> None:
    one, two = uuid.UUID(int=2**127 + 1), uuid.uuid4()
    expected = [one.bytes, None, two.bytes]
    text = pa.array(["x", str(one), None, str(two).upper()]).slice(1)
    assert fitted(P.UUID, text).to_pylist() == expected
    raw = pa.array([one.bytes, None, two.bytes], pa.binary(16))
    assert fitted(P.UUID, raw).to_pylist() == expected
    assert fitted(P.UUID, raw.cast(pa.binary())).to_pylist() == expected
    assert fitted(P.UUID, raw.cast(pa.uuid())).to_pylist() == expected
    assert fitted(P.UUID, pa.array([None], pa.string())).to_pylist() == [None]


@pytest.mark.parametrize(
    "text", [CANARY, str(uuid.UUID(int=1))[:-1] + "g", str(uuid.UUID(int=1)).replace("-", "0")]
)
def test_text_that_is_no_uuid_is_refused_with_a_count(text: str) -> None:
    message = refused(P.UUID, pa.array([str(uuid.UUID(int=1)), text, None, text]))
    assert message == "column 'c': 2 values are not uuids"


@pytest.mark.parametrize(
    ("type_", "array"),
    [
        (P.INT, pa.array([1, 2], pa.int64())),
        (P.STRING, pa.array([1, 2])),
        (P.LONG, pa.array([CANARY, CANARY])),
        (P.TIMESTAMP, pa.array([1, 2], pa.timestamp("us", tz="UTC"))),
        (P.TIMESTAMPTZ, pa.array([1, 2], pa.timestamp("us"))),
        (P.TIMESTAMP, pa.array([1, 2], pa.timestamp("ns"))),
        (Decimal(9, 2), pa.array([1, 2], pa.decimal128(9, 3))),
        (P.FLOAT, pa.array([1.0, 2.0])),
        (list_of(2, P.INT), pa.array([1, 2])),
        (Struct((Field(2, "a", P.INT),)), pa.array([{"b": 1}, None])),
        (P.UUID, pa.array([1, 2])),
    ],
    ids=str,
)
def test_another_type_is_refused_with_both_types_and_the_count(
    type_: Type, array: pa.Array
) -> None:
    message = refused(type_, array)
    assert f"is {type_} in the table" in message
    assert "2 values came as" in message
    assert CANARY not in message


def test_bytes_of_another_length_are_refused_with_a_count() -> None:
    message = refused(Fixed(3), pa.array([b"abc", b"ab", None, b"abcd"]))
    assert message == "column 'c': 2 values are not 3 bytes long"


REQUIRED = Struct((Field(2, "a", P.INT, required=True), Field(3, "b", P.INT)))


@pytest.mark.parametrize(
    ("type_", "required", "values", "message"),
    [
        (P.INT, True, [1, None, None], "'c': 2 values are null"),
        (REQUIRED, False, [None, {"a": None, "b": 1}, {"a": 1, "b": None}], "'c.a': 1 values"),
        (list_of(2, P.INT, required=True), False, [[1, None], None, []], "'c.element': 1 values"),
        (
            map_of(2, P.STRING, 3, P.INT, value_required=True),
            False,
            [[("a", None)], None, [("b", 1)]],
            "'c.value': 1 values",
        ),
        (list_of(2, REQUIRED), False, [[None, {"a": None, "b": 1}]], "'c.element.a': 1 values"),
    ],
)
def test_a_null_where_none_may_be_is_refused_by_column_and_count(
    type_: Type,
    required: bool,  # noqa: FBT001
    values: list[Any],
    message: str,
) -> None:
    inner = pa.struct([("a", pa.int32()), ("b", pa.int32())])
    types = {
        P.INT: pa.int32(),
        REQUIRED: inner,
        list_of(2, P.INT, required=True): pa.list_(pa.int32()),
        map_of(2, P.STRING, 3, P.INT, value_required=True): pa.map_(pa.string(), pa.int32()),
        list_of(2, REQUIRED): pa.list_(inner),
    }
    array = pa.array(values, types[type_])
    assert message in refused(type_, array, required=required)
    # A row that is cut away does no harm.
    wrong = [index for index, _ in enumerate(values) if _breaks(type_, array, index)]
    kept = array.slice(wrong[-1] + 1)
    assert len(fitted(type_, kept, required=required)) == len(kept)


def _breaks(type_: Type, array: pa.Array, index: int) -> bool:
    try:
        fitted(type_, array.slice(index, 1), required=type_ is P.INT)
    except UnrepresentableValueError:
        return True
    return False


def test_missing_and_unknown_columns_are_named() -> None:
    schema = Schema(0, (Field(1, "a", P.INT), Field(2, "b", P.INT)))
    batch = pa.RecordBatch.from_pydict({"a": [1], "z": [CANARY]})
    with pytest.raises(UnrepresentableValueError) as refusal:
        conform(batch, schema, arrow_schema(schema))
    assert "lacks columns ['b'] and has ['z']" in str(refusal.value)
    assert CANARY not in str(refusal.value)


def test_columns_are_matched_by_name_and_not_by_position() -> None:
    schema = Schema(0, (Field(1, "a", P.LONG), Field(2, "b", P.LONG)))
    batch = pa.RecordBatch.from_pydict({"b": [2], "a": [1]})
    assert conform(batch, schema, arrow_schema(schema)).to_pylist() == [{"a": 1, "b": 2}]


@examples(60)
@given(st.data())
def test_any_rows_that_fit_come_through_unchanged(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    batch = data.draw(batches(schema))
    skip = data.draw(st.integers(0, batch.num_rows - 1))
    conformed = conform(batch.slice(skip), schema, arrow_schema(schema))
    target = parquet_schema(schema)
    result = finished(pa.Table.from_batches([conformed]), schema, target)
    result.validate(full=True)
    pq.write_table(result, pa.BufferOutputStream())
    assert result.schema.equals(target, check_metadata=True)
    expected = str(batch.slice(skip).to_pylist())
    found = str(_uuids_as_text(result.to_pylist()))
    assert found == expected


def _uuids_as_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _uuids_as_text(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_uuids_as_text(each) for each in value]
    if isinstance(value, tuple):
        return tuple(_uuids_as_text(each) for each in value)
    return str(value) if isinstance(value, uuid.UUID) else value


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("plain_1", "plain_1"),
        ("1st", "_1st"),
        ("a b.c", "a_x20b_x2Ec"),
        ("é", "é"),
        ("\U0001f9ca", "_xD83E_xDDCA"),
    ],
)
def test_column_names_in_files_are_icebergs(name: str, expected: str) -> None:
    assert parquet_name(name) == expected


def test_two_columns_with_one_name_in_parquet_are_refused() -> None:
    schema = Schema(0, (Field(1, "a b", P.INT), Field(2, "a_x20b", P.INT)))
    with pytest.raises(UnsupportedSchemaChangeError, match="'a b', 'a_x20b'"):
        arrow_schema(schema)
