"""What a column of Postgres becomes in Iceberg."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.errors import ConfigError, UnsupportedSchemaChangeError
from frazil.model.policy import OnUnrepresentable
from frazil.model.postgres.types import (
    ArrayForm,
    Form,
    PostgresType,
    TypeKind,
    TypeRow,
    numeric_decimal,
    plan_column,
    resolve_type,
)
from frazil.model.schema.types import Decimal, Fixed, Primitive, Type, list_of
from tests.support.postgres.columns import column, numeric, numeric_modifier, pg

STRING = OnUnrepresentable.STRING

ROWS = {
    row.oid: row
    for row in (
        TypeRow(23, "int4", TypeKind.BASE),
        TypeRow(603, "box", TypeKind.BASE, delimiter=";"),
        TypeRow(1700, "numeric", TypeKind.BASE),
        TypeRow(1231, "numeric[]", TypeKind.ARRAY, inner=1700),
        TypeRow(1007, "int4[]", TypeKind.ARRAY, inner=23),
        TypeRow(1020, "box[]", TypeKind.ARRAY, inner=603),
        TypeRow(50, "price", TypeKind.DOMAIN, inner=1700, modifier=numeric_modifier(12, 2)),
        TypeRow(51, "dear", TypeKind.DOMAIN, inner=50),
        TypeRow(52, "dear[]", TypeKind.ARRAY, inner=51),
        TypeRow(53, "row_of_ints", TypeKind.DOMAIN, inner=1007),
        TypeRow(54, "row_of_ints[]", TypeKind.ARRAY, inner=53),
        TypeRow(55, "mood", TypeKind.ENUM),
        TypeRow(56, "mood[]", TypeKind.ARRAY, inner=55),
    )
}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bool", Primitive.BOOLEAN),
        ("int2", Primitive.INT),
        ("int4", Primitive.INT),
        ("int8", Primitive.LONG),
        ("oid", Primitive.LONG),
        ("float4", Primitive.FLOAT),
        ("float8", Primitive.DOUBLE),
        ("text", Primitive.STRING),
        ("varchar", Primitive.STRING),
        ("bpchar", Primitive.STRING),
        ("char", Primitive.STRING),
        ("json", Primitive.STRING),
        ("jsonb", Primitive.STRING),
        ("numeric", Primitive.STRING),
        ("time", Primitive.STRING),
        ("box", Primitive.STRING),
        ("date", Primitive.DATE),
        ("timestamp", Primitive.TIMESTAMP),
        ("timestamptz", Primitive.TIMESTAMPTZ),
        ("uuid", Primitive.UUID),
        ("bytea", Primitive.BINARY),
    ],
)
def test_a_built_in_type_has_a_type_in_iceberg(name: str, expected: Type) -> None:
    assert column(name).type == expected
    assert column(f"{name}[]").type == list_of(0, expected)


@pytest.mark.parametrize(
    "kind", [TypeKind.COMPOSITE, TypeKind.ENUM, TypeKind.RANGE, TypeKind.MULTIRANGE]
)
def test_a_type_that_iceberg_has_not_is_text(kind: TypeKind) -> None:
    plan = plan_column("seen", PostgresType(99_999, "theirs", kind))
    assert (plan.type, plan.form) == (Primitive.STRING, Form.AS_PRINTED)


def test_a_user_type_is_not_taken_for_a_built_in_one_of_its_name() -> None:
    assert plan_column("seen", PostgresType(99_999, "date")).type is Primitive.STRING


@pytest.mark.parametrize(
    ("precision", "scale", "expected"),
    [
        (10, 2, Decimal(10, 2)),
        (38, 38, Decimal(38, 38)),
        (38, 0, Decimal(38, 0)),
        (39, 0, None),
        (1000, 1000, None),
        (2, -3, Decimal(5, 0)),
        (30, -8, Decimal(38, 0)),
        (30, -9, None),
        (3, 5, Decimal(5, 5)),
        (3, 38, Decimal(38, 38)),
        (3, 39, None),
        (1, -1000, None),
        (1, 1000, None),
    ],
)
def test_a_numeric_becomes_the_decimal_that_holds_all_its_numbers_or_text(
    precision: int, scale: int, expected: Decimal | None
) -> None:
    plan = column(numeric(precision, scale))
    assert plan.type == (Primitive.STRING if expected is None else expected)
    assert plan.form is (Form.AS_PRINTED if expected is None else Form.NUMERIC)


@given(st.integers(1, 1000), st.integers(-1000, 1000))
def test_no_decimal_is_narrower_than_its_numeric(precision: int, scale: int) -> None:
    found = numeric_decimal(numeric_modifier(precision, scale))
    before, behind = max(precision - scale, 0), max(scale, 0)
    assert (found is None) == (before + behind > 38)
    if found is not None:
        assert (found.precision - found.scale, found.scale) == (before, behind)


def test_a_domain_is_read_by_its_base_however_deep() -> None:
    plan = plan_column("seen", resolve_type(51, -1, ROWS))
    assert (plan.source, plan.type, plan.form) == ("dear", Decimal(12, 2), Form.NUMERIC)


def test_the_modifier_of_an_array_is_its_elements() -> None:
    plan = plan_column("seen", resolve_type(1231, numeric_modifier(9, 1), ROWS), element_id=7)
    assert (plan.type, plan.form) == (list_of(7, Decimal(9, 1)), ArrayForm(Form.NUMERIC))


def test_an_array_of_a_domain_has_the_elements_of_its_base() -> None:
    assert plan_column("seen", resolve_type(52, -1, ROWS)).type == list_of(0, Decimal(12, 2))


def test_a_domain_over_an_array_is_a_list_and_an_array_of_it_is_a_list_of_text() -> None:
    assert plan_column("seen", resolve_type(53, -1, ROWS)).type == list_of(0, Primitive.INT)
    assert plan_column("seen", resolve_type(54, -1, ROWS)).type == list_of(0, Primitive.STRING)


def test_an_array_is_cut_where_its_element_type_says() -> None:
    assert plan_column("seen", resolve_type(1020, -1, ROWS)).form == ArrayForm(Form.AS_PRINTED, ";")


def test_an_array_of_an_enum_is_a_list_of_text() -> None:
    assert plan_column("seen", resolve_type(56, -1, ROWS)).type == list_of(0, Primitive.STRING)


def test_a_type_that_was_not_read_from_the_catalog_is_refused_by_its_oid() -> None:
    with pytest.raises(UnsupportedSchemaChangeError, match="OID 4711"):
        resolve_type(4711, -1, ROWS)


@pytest.mark.parametrize("name", ["date", "timestamp", "timestamptz", "date[]", "int4[]", "text[]"])
def test_under_string_a_column_that_may_hold_what_iceberg_cannot_is_text(name: str) -> None:
    plan = column(name, policy=STRING)
    assert (plan.type, plan.form) == (Primitive.STRING, Form.AS_PRINTED)


def test_under_string_a_decimal_is_text_because_a_numeric_may_be_nan() -> None:
    assert column(numeric(10, 2), policy=STRING).type is Primitive.STRING


@pytest.mark.parametrize("name", ["bool", "int2", "int8", "oid", "float4", "uuid", "bytea", "text"])
def test_under_string_a_column_whose_values_always_fit_keeps_its_type(name: str) -> None:
    assert column(name, policy=STRING).type == column(name).type


@pytest.mark.parametrize(
    ("name", "declared", "form"),
    [
        ("int2", Primitive.LONG, Form.INTEGER),
        ("float4", Primitive.DOUBLE, Form.REAL),
        ("timestamp", Primitive.TIMESTAMPTZ, Form.TIMESTAMP),
        ("timestamptz", Primitive.TIMESTAMPTZ, Form.TIMESTAMPTZ),
        ("numeric", Decimal(20, 6), Form.NUMERIC),
        ("uuid", Primitive.STRING, Form.AS_PRINTED),
        ("text", Primitive.STRING, Form.AS_PRINTED),
        ("int4[]", Primitive.STRING, Form.AS_PRINTED),
        ("int4[]", list_of(5, Primitive.LONG), ArrayForm(Form.INTEGER)),
        ("numeric[]", list_of(5, Decimal(9, 0)), ArrayForm(Form.NUMERIC)),
        ("uuid[]", list_of(5, Primitive.STRING), ArrayForm(Form.AS_PRINTED)),
    ],
)
def test_a_declared_type_is_taken_when_it_loses_nothing(
    name: str, declared: Type, form: Form | ArrayForm
) -> None:
    for policy in OnUnrepresentable:
        plan = column(name, declared=declared, policy=policy)
        assert (plan.type, plan.form, plan.on_unrepresentable) == (declared, form, policy)


@pytest.mark.parametrize(
    ("name", "declared"),
    [
        ("int8", Primitive.INT),
        ("float8", Primitive.FLOAT),
        ("numeric", Primitive.DOUBLE),
        ("text", Primitive.INT),
        ("text", Decimal(9, 2)),
        ("uuid", Fixed(16)),
        ("timestamptz", Primitive.TIMESTAMP),
        ("int4", list_of(5, Primitive.INT)),
        ("int4[]", Primitive.INT),
        ("int4[]", list_of(5, list_of(6, Primitive.INT))),
        ("int8[]", list_of(5, Primitive.INT)),
    ],
)
def test_a_declared_type_that_may_lose_something_is_a_mistake_of_the_configuration(
    name: str, declared: Type
) -> None:
    with pytest.raises(ConfigError, match="'seen'") as caught:
        column(name, declared=declared)
    assert caught.value.next_step is not None


def test_a_plan_travels_to_a_task() -> None:
    plan = plan_column("seen", pg("int4[]"))
    assert pickle.loads(pickle.dumps(plan)) == plan
