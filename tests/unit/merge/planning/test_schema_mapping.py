"""How a changelog's schema reaches its mirror, by field id."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from frazil.errors import ConfigError, UnsupportedSchemaChangeError
from frazil.merge.planning.column_mapping import (
    ColumnOrigin,
    decode_columns,
)
from frazil.merge.planning.schema_mapping import DELETED_COLUMN, plan_schema
from frazil.model.schema.types import Decimal, Field, Primitive, Schema, Struct, list_of, map_of
from tests.unit.merge.planning.schema_facts import (
    DROPPING,
    ID,
    ID_REQUIRED,
    NAME,
    NAME_2,
    PER_KEY,
    POINT,
    PRICE,
    SETTINGS,
    SIZES,
    SOFT,
    SOURCE,
    STRICT,
    TAGS,
    changed,
    changelog,
    first,
    names,
    then,
)

if TYPE_CHECKING:
    from frazil.model.schema.types import Default, Type

P = Primitive


# A mirror that is new.


def test_a_new_mirror_has_the_sources_columns_numbered_as_iceberg_numbers_them() -> None:
    plan = first()
    assert plan.mirror == Schema(
        0,
        (
            Field(1, "id", P.INT, required=True),
            Field(2, "name", P.STRING),
            Field(3, "price", Decimal(9, 2)),
            Field(
                4, "point", Struct((Field(7, "x", P.FLOAT), Field(8, "y", P.INT, required=True)))
            ),
            Field(5, "tags", list_of(9, P.INT)),
            Field(6, "sizes", map_of(10, P.STRING, 11, P.INT)),
        ),
        frozenset({1}),
    )
    assert (plan.wanted, plan.changes, plan.sequence, plan.deleted) == (None, (), None, None)
    assert plan.key == plan.mirror.fields[:1]
    assert plan.projection == tuple((each, each.name) for each in plan.mirror.fields)
    assert all(each.fits for each in plan.mappings)


def test_the_map_of_columns_has_every_field_at_any_depth() -> None:
    plan = first()
    assert plan.unchanged_ids == {11: 1, 12: 2, 13: 3, 14: 4, 15: 5, 16: 6}
    mapped = decode_columns(plan.columns, table="t")
    pairs = {each.changelog: each.mirror for each in mapped.fields}
    assert pairs == {**plan.unchanged_ids, 21: 7, 22: 8, 23: 9, 24: 10, 25: 11}
    assert mapped.key == (1,)


def test_with_order_per_key_the_sequence_stays() -> None:
    plan = first(ID, NAME, settings=PER_KEY)
    assert names(plan) == ["id", "name", "cdc_sequence_number"]
    assert plan.sequence == Field(3, "cdc_sequence_number", P.STRING)


def test_soft_deletes_add_a_flag_that_the_merge_writes() -> None:
    plan = first(ID, NAME, settings=SOFT)
    assert plan.deleted == Field(3, DELETED_COLUMN, P.BOOLEAN)
    assert plan.projection[-1] == (plan.deleted, None)
    assert [each.origin for each in plan.mappings] == ["changelog", "changelog", "deleted"]


@pytest.mark.parametrize("name", [DELETED_COLUMN, DELETED_COLUMN.upper()])
def test_a_source_column_called_like_the_flag_is_refused(name: str) -> None:
    taken = Field(17, name, P.BOOLEAN)
    with pytest.raises(ConfigError, match="flag of soft deletes"):
        first(ID, taken, settings=SOFT)
    assert names(first(ID, taken)) == ["id", name]


@pytest.mark.parametrize("type_", [P.FLOAT, P.DOUBLE])
def test_a_key_with_a_float_identifies_nothing_to_iceberg(type_: Type) -> None:
    settings = replace(SETTINGS, key=("id", "weight"))
    plan = first(ID, Field(17, "weight", type_), settings=settings)
    assert [each.required for each in plan.mirror.fields] == [True, True]
    assert plan.mirror.identifier_ids == frozenset()
    assert [each.name for each in plan.key] == ["id", "weight"]


def test_a_key_keeps_the_order_of_the_settings() -> None:
    settings = replace(SETTINGS, key=("name", "id"))
    plan = first(settings=settings)
    assert [each.id for each in plan.key] == [2, 1]
    assert plan.mirror.identifier_ids == {1, 2}


def test_a_new_mirror_has_no_defaults_because_nothing_is_left_to_fill() -> None:
    inner = Struct((Field(21, "x", P.INT, initial_default=4),))
    plan = first(
        ID,
        Field(17, "a", P.INT, initial_default=1, write_default=1),
        Field(18, "b", list_of(26, inner)),
        Field(19, "c", map_of(27, P.STRING, 28, P.INT)),
    )
    assert all(
        each.field.initial_default is None and each.field.write_default is None
        for each in plan.mirror.columns()
    )


def test_names_that_are_one_to_spark_are_refused() -> None:
    with pytest.raises(UnsupportedSchemaChangeError, match="name and Name would be one column"):
        first(ID, NAME, Field(17, "Name", P.INT))
    inner = Struct((Field(21, "x", P.INT), Field(22, "X", P.INT)))
    with pytest.raises(UnsupportedSchemaChangeError, match=r"point\.x and point\.X would"):
        first(ID, replace(POINT, type=inner))


# A mirror that follows.


def test_without_differences_there_are_no_steps() -> None:
    before = first()
    plan = then(before, *SOURCE, settings=STRICT)
    assert plan == before


def test_a_new_column_comes_where_the_source_has_it_with_a_new_id() -> None:
    added = Field(17, "note", P.STRING)
    plan = then(first(), ID, added, *SOURCE[1:])
    assert plan.wanted == plan.mirror
    assert plan.mirror.fields[1] == Field(12, "note", P.STRING)
    assert plan.changes == ("note is added as string",)
    assert plan.unchanged_ids[17] == 12


def test_a_new_column_with_fields_inside_gets_ids_for_all_of_them() -> None:
    inner = Struct((Field(42, "a", P.INT, required=True), Field(43, "b", list_of(44, P.INT))))
    plan = then(first(), *SOURCE, Field(41, "more", inner, required=True))
    assert plan.mirror.fields[-1] == Field(
        12,
        "more",
        Struct((Field(13, "a", P.INT, required=True), Field(14, "b", list_of(15, P.INT)))),
    )
    mapped = decode_columns(plan.columns, table="t")
    assert {each.changelog: each.mirror for each in mapped.fields}[44] == 15


@pytest.mark.parametrize("default", [7, "x", True])
def test_a_default_fills_old_rows_where_the_format_knows_defaults(default: Default) -> None:
    added = Field(17, "note", P.STRING, initial_default=default, write_default=default)
    plan = then(first(), *SOURCE, added)
    assert plan.mirror.fields[-1] == replace(added, id=12)
    assert plan.changes == ("note is added as string with a default",)


def test_a_default_is_left_out_with_a_message_where_the_format_has_none() -> None:
    inner = Struct((Field(42, "a", P.INT, initial_default=1),))
    added = (Field(17, "note", P.STRING, initial_default="secret"), Field(41, "more", inner))
    plan = then(first(), *SOURCE, *added, version=2)
    assert plan.mirror.fields[-2:] == (
        Field(12, "note", P.STRING),
        Field(13, "more", Struct((Field(14, "a", P.INT),))),
    )
    assert [each for each in plan.changes if "null" in each] == [
        "note loses its default, which tables of this format version do not keep: rows merged "
        "before show null",
        "more loses its default, which tables of this format version do not keep: rows merged "
        "before show null",
    ]
    assert "secret" not in "".join(plan.changes)


def test_a_renamed_column_keeps_its_id() -> None:
    plan = then(first(), *changed(replace(NAME, name="full_name")))
    assert plan.mirror.fields[1] == Field(2, "full_name", P.STRING)
    assert plan.changes == ("name is renamed to full_name",)
    assert plan.projection[1] == (plan.mirror.fields[1], "full_name")


def test_two_columns_may_swap_their_names() -> None:
    swapped = (ID, replace(NAME, name="price"), replace(PRICE, name="name"), *SOURCE[3:])
    assert [each.id for each in then(first(), *swapped).mirror.fields[1:3]] == [2, 3]


def test_the_order_follows_the_source() -> None:
    plan = then(first(ID, NAME, PRICE), PRICE, ID, NAME)
    assert names(plan) == ["price", "id", "name"]
    assert plan.changes == ("price moves to the front",)
    again = then(plan, ID, NAME, PRICE)
    assert again.changes == ("price moves behind name",)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (replace(ID, type=P.LONG), "id becomes long, and was int"),
        (
            replace(PRICE, type=Decimal(12, 2)),
            "price becomes decimal(12, 2), and was decimal(9, 2)",
        ),
        (
            replace(POINT, type=Struct((Field(21, "x", P.DOUBLE), Field(22, "y", P.INT)))),
            "point.x becomes double, and was float; point.y becomes optional",
        ),
        (replace(TAGS, type=list_of(23, P.LONG)), "tags.element becomes long, and was int"),
        (
            replace(SIZES, type=map_of(24, P.STRING, 25, P.LONG)),
            "sizes.value becomes long, and was int",
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Field) else "",
)
def test_wider_types_are_followed_at_any_depth(field: Field, message: str) -> None:
    plan = then(first(), *changed(field))
    assert "; ".join(plan.changes) == message
    assert all(each.fits for each in plan.mappings)


def test_fields_inside_are_added_renamed_and_reordered_by_id() -> None:
    inner = Struct(
        (Field(22, "why", P.INT, required=True), Field(29, "z", P.DATE), Field(21, "x", P.FLOAT))
    )
    plan = then(first(), *changed(replace(POINT, type=inner)))
    point = plan.mirror.fields[3]
    assert point.type == Struct(
        (Field(8, "why", P.INT, required=True), Field(12, "z", P.DATE), Field(7, "x", P.FLOAT))
    )
    assert plan.mappings[3].fits


def test_a_mirror_that_is_wider_than_the_changelog_stays_so() -> None:
    before = first(ID, replace(PRICE, type=Decimal(20, 2)), Field(17, "n", P.LONG))
    plan = then(before, ID, PRICE, Field(17, "n", P.INT))
    assert plan.wanted is None
    assert [each.fits for each in plan.mappings] == [True, False, False]


def test_what_may_be_null_in_the_changelog_may_be_null_in_the_mirror() -> None:
    before = first(ID, NAME)
    hand_made = replace(
        before, mirror=replace(before.mirror, fields=(ID_REQUIRED, replace(NAME_2, required=True)))
    )
    assert then(hand_made, ID, NAME).changes == ("name becomes optional",)
    assert then(hand_made, ID, replace(NAME, required=True)).changes == ()


# Columns that the source dropped.


def test_a_dropped_column_stays_and_is_null_from_then_on() -> None:
    plan = then(first(), ID, *SOURCE[2:])
    assert plan.wanted is None
    assert names(plan) == [each.name for each in SOURCE]
    assert plan.projection[1] == (Field(2, "name", P.STRING), None)
    assert plan.mappings[1].origin is ColumnOrigin.NOTHING
    assert not plan.mappings[1].fits
    assert plan.changes == ("name was dropped at the source and is kept",)
    assert 12 not in plan.unchanged_ids
    # Reported once; from then on nothing has changed.
    again = then(plan, ID, *SOURCE[2:], settings=STRICT)
    assert (again.changes, again.columns) == ((), plan.columns)


def test_a_dropped_column_that_was_required_becomes_optional() -> None:
    before = first(ID, NAME)
    required = replace(before.mirror, fields=(ID_REQUIRED, replace(NAME_2, required=True)))
    plan = then(replace(before, mirror=required), ID)
    assert plan.changes == ("name becomes optional", "name was dropped at the source and is kept")


def test_a_dropped_column_is_dropped_if_configured() -> None:
    plan = then(first(), ID, *SOURCE[2:], settings=DROPPING)
    assert "name" not in names(plan)
    assert plan.changes == ("name is dropped",)
    assert '"changelog":12,' not in plan.columns


def test_a_kept_column_is_dropped_when_the_setting_changes() -> None:
    kept = then(first(), ID, *SOURCE[2:])
    assert "name" not in names(then(kept, ID, *SOURCE[2:], settings=DROPPING))


def test_a_column_dropped_and_made_again_is_another_column() -> None:
    again = Field(17, "NAME", P.INT)
    plan = then(first(ID, NAME), ID, again)
    assert plan.mirror.fields == (
        ID_REQUIRED,
        Field(2, "name_dropped_2", P.STRING),
        Field(12 - 9, "NAME", P.INT),
    )
    assert plan.projection[1:] == ((plan.mirror.fields[1], None), (plan.mirror.fields[2], "NAME"))
    assert plan.changes == (
        "name is renamed to name_dropped_2",
        "NAME is added as int",
        "name was dropped at the source and is kept",
    )
    # And once more, until no other column has the name.
    taken = (Field(18, "name", P.INT), Field(19, "name_dropped_3", P.INT))
    thrice = then(plan, ID, *taken)
    assert names(thrice) == [
        "id",
        "name_dropped_2",
        "NAME_dropped_3_dropped_3",
        "name",
        "name_dropped_3",
    ]


def test_a_field_dropped_inside_a_struct_is_kept_or_dropped_likewise() -> None:
    inner = Struct((Field(22, "y", P.INT, required=True), Field(29, "x", P.INT)))
    fields = changed(replace(POINT, type=inner))
    kept = then(first(), *fields)
    assert kept.mirror.fields[3].type == Struct(
        (
            Field(7, "x_dropped_7", P.FLOAT),
            Field(8, "y", P.INT, required=True),
            Field(12, "x", P.INT),
        )
    )
    assert not kept.mappings[3].fits
    assert [each.origin for each in kept.mappings[3].members] == [
        "nothing",
        "changelog",
        "changelog",
    ]
    dropped = then(first(), *fields, settings=DROPPING)
    assert dropped.mirror.fields[3].type == Struct(
        (Field(8, "y", P.INT, required=True), Field(12, "x", P.INT))
    )
    assert dropped.mappings[3].fits


def test_a_column_that_partitioning_needs_is_not_dropped() -> None:
    before = first(ID, NAME)
    with pytest.raises(UnsupportedSchemaChangeError, match="partitioned or sorted by it"):
        plan_schema(
            changelog(ID),
            before.mirror,
            before.columns,
            DROPPING,
            last_column_id=2,
            pinned=frozenset({2}),
        )
