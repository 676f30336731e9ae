from __future__ import annotations

import pytest

from frazil.errors import ConfigError, UnsupportedSchemaChangeError
from frazil.model.schema.layout_expressions import (
    TransformedColumn,
    parse_partition_term,
    parse_sort_term,
    plan_partition_spec,
    plan_sort_order,
    quoted_if_odd,
)
from frazil.model.schema.partitioning import (
    UNPARTITIONED,
    UNSORTED,
    PartitionField,
    PartitionSpec,
    SortField,
    SortOrder,
    Transform,
    TransformKind,
)
from frazil.model.schema.types import Field, Primitive, Schema

SCHEMA = Schema(
    0,
    (
        Field(1, "id", Primitive.LONG, required=True),
        Field(2, "created_at", Primitive.TIMESTAMPTZ),
        Field(3, "my column", Primitive.STRING),
    ),
)


def column(name: str, kind: TransformKind, width: int = 0) -> TransformedColumn:
    return TransformedColumn(name, Transform(kind, width))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("day(created_at)", column("created_at", TransformKind.DAY)),
        ("bucket(16, id)", column("id", TransformKind.BUCKET, 16)),
        ("TRUNCATE( 4 ,name)", column("name", TransformKind.TRUNCATE, 4)),
        ("region", column("region", TransformKind.IDENTITY)),
        ('"my column"', column("my column", TransformKind.IDENTITY)),
        ("void(x)", column("x", TransformKind.VOID)),
        ('bucket(4, "odd name, )")', column("odd name, )", TransformKind.BUCKET, 4)),
        ('"a ""b"""', column('a "b"', TransformKind.IDENTITY)),
        ("day(`a (``b`)", column("a (`b", TransformKind.DAY)),
        ('truncate(3, "desc nulls last")', column("desc nulls last", TransformKind.TRUNCATE, 3)),
    ],
)
def test_partition_expressions_are_understood(text: str, expected: TransformedColumn) -> None:
    assert parse_partition_term(text) == expected


@pytest.mark.parametrize(
    "text", ["", "day()", "bucket(0, id)", "bucket(x, id)", "day(1, a)", "day(0, a)",
             "bucket(9999999999, a)", "bucket(id)", "a b", "day(a) b", "day(a"]
)  # fmt: skip
def test_other_partition_expressions_are_not(text: str) -> None:
    with pytest.raises(ValueError, match="identity"):
        parse_partition_term(text)


def test_sort_expressions_have_a_direction_and_a_null_order() -> None:
    assert parse_sort_term("id").nulls_first
    assert not parse_sort_term("id").descending
    down = parse_sort_term("bucket(4, id) DESC")
    assert (down.descending, down.nulls_first, down.by.transform.width) == (True, False, 4)
    assert parse_sort_term("id desc nulls first").nulls_first


@pytest.mark.parametrize(
    "name", ["plain", "odd name, )", 'a "b"', "`", "a.b", "desc", " ", "x desc", "(", "ü"]
)
def test_every_name_can_be_written(name: str) -> None:
    spelled = quoted_if_odd(name)
    assert parse_partition_term(spelled).column == name
    assert parse_partition_term(f"bucket(4, {spelled})").column == name
    down = parse_sort_term(f"day({spelled}) desc nulls first")
    assert (down.by.column, down.descending, down.nulls_first) == (name, True, True)


def test_expressions_become_a_spec_with_the_names_iceberg_gives() -> None:
    expressions = [
        "day(created_at)",
        "bucket(16, id)",
        'truncate(4, "my column")',
        "id",
        "void(id)",
    ]
    kinds = [
        (2, "created_at_day", Transform(TransformKind.DAY)),
        (1, "id_bucket", Transform(TransformKind.BUCKET, 16)),
        (3, "my column_trunc", Transform(TransformKind.TRUNCATE, 4)),
        (1, "id", Transform(TransformKind.IDENTITY)),
        (1, "id_null", Transform(TransformKind.VOID)),
    ]
    assert plan_partition_spec(expressions, SCHEMA) == PartitionSpec(
        0,
        tuple(
            PartitionField(source, 1000 + number, name, transform)
            for number, (source, name, transform) in enumerate(kinds)
        ),
    )


def test_expressions_become_a_sort_order() -> None:
    assert plan_sort_order(["id desc", "day(created_at)"], SCHEMA) == SortOrder(
        1,
        (
            SortField(1, Transform(TransformKind.IDENTITY), descending=True, nulls_first=False),
            SortField(2, Transform(TransformKind.DAY), descending=False, nulls_first=True),
        ),
    )


def test_no_expressions_are_no_partitions_and_no_order() -> None:
    assert plan_partition_spec([], SCHEMA) == UNPARTITIONED
    assert plan_sort_order([], SCHEMA) == UNSORTED


def test_an_unknown_column_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"no column 'nope' .* there are: id, created_at"):
        plan_partition_spec(["day(nope)"], SCHEMA)
    with pytest.raises(ConfigError, match="no column"):
        plan_sort_order(["nope"], SCHEMA)


def test_a_transform_that_does_not_fit_the_type_is_refused() -> None:
    with pytest.raises(UnsupportedSchemaChangeError, match="day is not applied to long"):
        plan_partition_spec(["day(id)"], SCHEMA)
