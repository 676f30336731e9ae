from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.errors import UnsupportedSchemaChangeError
from frazil.model.schema.change import (
    Add,
    Drop,
    MakeOptional,
    Move,
    Rename,
    SchemaChange,
    Step,
    Widen,
    plan_schema_change,
)
from frazil.model.schema.types import Decimal, Field, Primitive, Schema, Struct, list_of, map_of

if TYPE_CHECKING:
    from frazil.model.schema.types import Type

P = Primitive
ID = Field(1, "id", P.INT, required=True)
NAME = Field(2, "name", P.STRING)
PRICE = Field(3, "price", Decimal(9, 2))
INNER = Struct((Field(5, "x", P.FLOAT), Field(6, "y", P.INT, required=True)))
POINT = Field(4, "point", INNER)
TAGS = Field(7, "tags", list_of(8, P.INT, required=True))
SIZES = Field(9, "sizes", map_of(10, P.STRING, 11, P.INT))
CURRENT = Schema(0, (ID, NAME, PRICE, POINT, TAGS, SIZES), frozenset({1}))


def steps_to(*fields: Field) -> tuple[Step, ...]:
    return plan_schema_change(CURRENT, Schema(1, fields, frozenset({1}))).steps


def test_equal_schemas_need_no_step() -> None:
    assert not plan_schema_change(CURRENT, CURRENT)
    assert plan_schema_change(CURRENT, CURRENT) == SchemaChange(())


def test_each_change_that_can_be_followed_is_a_step() -> None:
    new = Field(12, "note", P.STRING, initial_default="-")
    steps = steps_to(
        replace(ID, type=P.LONG),
        new,
        replace(PRICE, type=Decimal(12, 2), name="cost"),
        POINT,
        TAGS,
        SIZES,
    )
    assert steps == (
        Drop(2),
        Widen(1, P.INT, P.LONG),
        Rename(3, "cost"),
        Widen(3, Decimal(9, 2), Decimal(12, 2)),
        Add(new, parent=None, after=1),
    )


def test_members_of_structs_elements_and_values_follow_as_well() -> None:
    member = Field(12, "z", P.DATE)
    inner = Struct((Field(6, "y", P.LONG), Field(5, "x", P.DOUBLE), member))
    steps = steps_to(
        ID,
        NAME,
        PRICE,
        replace(POINT, type=inner),
        replace(TAGS, type=list_of(8, P.LONG)),
        replace(SIZES, type=map_of(10, P.STRING, 11, P.LONG)),
    )
    assert set(steps) == {
        MakeOptional(6),
        Widen(6, P.INT, P.LONG),
        Widen(5, P.FLOAT, P.DOUBLE),
        Move(6, after=None),
        Add(member, parent=4, after=5),
        MakeOptional(8),
        Widen(8, P.INT, P.LONG),
        Widen(11, P.INT, P.LONG),
    }


def test_one_column_moved_is_one_step() -> None:
    assert steps_to(NAME, PRICE, POINT, TAGS, SIZES, ID) == (Move(1, after=9),)
    assert steps_to(SIZES, ID, NAME, PRICE, POINT, TAGS) == (Move(9, after=None),)


def test_two_columns_may_swap_their_names() -> None:
    first, second = replace(NAME, name="price"), replace(PRICE, name="name")
    steps = steps_to(ID, first, second, POINT, TAGS, SIZES)
    assert steps == (Rename(2, "price"), Rename(3, "name"))


@pytest.mark.parametrize(
    ("changed", "difference"),
    [
        (replace(NAME, type=P.INT), "name changes from string to int"),
        (replace(ID, type=P.STRING), "id changes from int to string"),
        (replace(PRICE, type=Decimal(12, 3)), "price changes from decimal(9, 2) to decimal(12, 3)"),
        (replace(PRICE, type=Decimal(8, 2)), "price changes from decimal(9, 2) to decimal(8, 2)"),
        (replace(NAME, required=True), "name becomes required"),
        (replace(ID, required=False), "id is part of the key and becomes optional"),
        (replace(NAME, write_default="secret"), "name changes its default"),
        (replace(POINT, type=P.STRING), "point changes from struct<x: float, y: int> to string"),
        (replace(TAGS, type=list_of(20, P.INT)), "tags.element is another field"),
        (
            replace(SIZES, type=map_of(10, P.LONG, 11, P.INT)),
            "sizes changes its key from string to long",
        ),
        (
            replace(POINT, type=Struct((Field(5, "x", P.STRING), INNER.fields[1]))),
            "point.x changes from float to string",
        ),
        (
            replace(POINT, type=Struct((*INNER.fields, replace(NAME, name="n")))),
            "point.n moves to another parent",
        ),
    ],
    ids=lambda value: value.split(" ")[0] if isinstance(value, str) else "",
)
def test_anything_else_is_refused_with_the_difference(changed: Field, difference: str) -> None:
    fields = tuple(changed if each.id == changed.id else each for each in CURRENT.fields)
    with pytest.raises(UnsupportedSchemaChangeError) as refusal:
        steps_to(*fields)
    assert difference in str(refusal.value)
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(("old", "new"), [(P.DATE, P.TIMESTAMP), (P.LONG, P.INT)])
def test_types_do_not_turn_into_others(old: Type, new: Type) -> None:
    before = Schema(0, (Field(1, "a", old),))
    with pytest.raises(UnsupportedSchemaChangeError, match=f"a changes from {old} to {new}"):
        plan_schema_change(before, Schema(1, (Field(1, "a", new),)))


def test_every_difference_is_named_at_once() -> None:
    new = Field(12, "must", P.INT, required=True)
    with pytest.raises(UnsupportedSchemaChangeError) as refusal:
        plan_schema_change(
            CURRENT, Schema(1, (ID, replace(NAME, type=P.INT), new, POINT, TAGS, SIZES))
        )
    text = str(refusal.value)
    assert "name changes from string to int" in text
    assert "must is new, required and without a default" in text
    assert "the key changes from (id) to ()" in text


def followed(change: SchemaChange, fields: tuple[Field, ...]) -> list[int]:
    order = [each.id for each in fields]
    for step in change.steps:
        match step:
            case Drop(field_id):
                order.remove(field_id)
            case Add(field, _, after):
                order.insert(0 if after is None else order.index(after) + 1, field.id)
            case Move(field_id, after):
                order.remove(field_id)
                order.insert(0 if after is None else order.index(after) + 1, field_id)
            case _:
                raise AssertionError(step)
    return order


ids = st.lists(st.integers(1, 12), unique=True, max_size=10)


@given(ids, ids)
def test_the_steps_lead_to_the_wanted_order(before: list[int], after: list[int]) -> None:
    old = tuple(Field(each, f"c{each}", P.INT) for each in before)
    new = tuple(Field(each, f"c{each}", P.INT) for each in after)
    change = plan_schema_change(Schema(0, old), Schema(1, new))
    assert followed(change, old) == after
