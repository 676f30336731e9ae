from __future__ import annotations

import pickle

import pytest

from frazil.errors import UnsupportedSchemaChangeError
from frazil.model.schema.partitioning import (
    PartitionField,
    PartitionSpec,
    Transform,
    TransformKind,
    parse_transform,
)
from frazil.model.schema.types import (
    Decimal,
    Field,
    Fixed,
    Primitive,
    Schema,
    Struct,
    list_of,
    map_of,
    parse_scalar,
)

ADDRESS = Struct((Field(3, "city", Primitive.STRING), Field(4, "zip", Primitive.INT)))
SCHEMA = Schema(
    7,
    (
        Field(1, "id", Primitive.LONG, required=True),
        Field(2, "address", ADDRESS),
        Field(5, "tags", list_of(6, Primitive.STRING)),
        Field(
            7, "points", map_of(8, Primitive.STRING, 9, Struct((Field(10, "x", Primitive.INT),)))
        ),
    ),
    frozenset({1}),
)


def test_fields_are_found_by_id_and_by_dotted_name_at_any_depth() -> None:
    for name, field_id in {
        "id": 1,
        "address.zip": 4,
        "tags.element": 6,
        "points.key": 8,
        "points.value.x": 10,
    }.items():
        by_name, by_id = SCHEMA.by_name(name), SCHEMA.by_id(field_id)
        assert by_name is not None
        assert by_id is not None
        assert by_name.field is by_id.field
        assert by_id.name == name
    assert SCHEMA.by_id(99) is None
    assert SCHEMA.by_name("zip") is None


def test_stored_fields_come_in_the_order_of_a_file_and_know_whether_they_repeat() -> None:
    assert [(each.field.id, each.repeated) for each in SCHEMA.leaves()] == [
        (1, False),
        (3, False),
        (4, False),
        (6, True),
        (8, True),
        (10, True),
    ]


def test_a_schema_travels_unchanged() -> None:
    assert pickle.loads(pickle.dumps(SCHEMA)) == SCHEMA
    spec = PartitionSpec(1, (PartitionField(1, 1000, "b", parse_transform("bucket[4]")),))
    assert pickle.loads(pickle.dumps(spec)) == spec


@pytest.mark.parametrize(
    ("name", "type_"),
    [
        *((each.value, each) for each in Primitive),
        ("decimal(9, 2)", Decimal(9, 2)),
        ("decimal(38,38)", Decimal(38, 38)),
        ("fixed[16]", Fixed(16)),
    ],
)
def test_types_are_read_by_icebergs_names(name: str, type_: object) -> None:
    parsed = parse_scalar(name)
    assert parsed == type_
    assert parse_scalar(str(parsed)) == type_


@pytest.mark.parametrize(
    "name",
    ["unknown", "variant", "geometry(srid:4326)", "geography", "decimal(39, 1)", "decimal(3, 4)"],
)
def test_an_unsupported_type_is_refused_by_name(name: str) -> None:
    with pytest.raises(UnsupportedSchemaChangeError) as refusal:
        parse_scalar(name)
    assert repr(name) in str(refusal.value)


@pytest.mark.parametrize(
    "text", ["identity", "year", "month", "day", "hour", "void", "bucket[16]", "truncate[4]"]
)
def test_transforms_are_read_and_printed_as_iceberg_does(text: str) -> None:
    assert str(parse_transform(text)) == text


@pytest.mark.parametrize(
    "text", ["bucket", "bucket[0]", "truncate[2147483648]", "zorder", "day[1]"]
)
def test_an_unknown_transform_is_refused_by_name(text: str) -> None:
    with pytest.raises(UnsupportedSchemaChangeError) as refusal:
        parse_transform(text)
    assert repr(text) in str(refusal.value)


def test_a_transform_knows_what_it_takes_and_gives() -> None:
    day = Transform(TransformKind.DAY)
    assert day.result(Primitive.TIMESTAMP) is Primitive.DATE
    assert not day.accepts(Primitive.STRING)
    assert Transform(TransformKind.HOUR).accepts(Primitive.TIMESTAMP_NS)
    assert not Transform(TransformKind.HOUR).accepts(Primitive.DATE)
    assert not Transform(TransformKind.BUCKET, 4).accepts(Primitive.DOUBLE)
    assert Transform(TransformKind.TRUNCATE, 4).result(Decimal(9, 2)) == Decimal(9, 2)
    assert not Transform(TransformKind.TRUNCATE, 4).accepts(Fixed(4))


@pytest.mark.parametrize(
    ("source", "transform", "message"),
    [
        (99, "identity", "no column"),
        (6, "identity", "no column"),
        (2, "identity", "not applied to struct"),
        (1, "day", "day is not applied to long"),
    ],
)
def test_a_spec_that_does_not_fit_the_schema_is_refused(
    source: int, transform: str, message: str
) -> None:
    spec = PartitionSpec(0, (PartitionField(source, 1000, "part", parse_transform(transform)),))
    with pytest.raises(UnsupportedSchemaChangeError, match=message):
        spec.check(SCHEMA)


def test_a_void_field_may_outlive_its_column() -> None:
    PartitionSpec(0, (PartitionField(99, 1000, "gone", parse_transform("void")),)).check(SCHEMA)
