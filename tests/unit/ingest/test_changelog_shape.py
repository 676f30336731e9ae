"""How a source's table becomes the schema of its changelog, and how that follows it by number."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from frazil.errors import ConfigError, UnsupportedSchemaChangeError
from frazil.ingest.planning.changelog_plan import ChangelogNow, ChangelogPlan, plan_changelog
from frazil.ingest.planning.column_numbers import (
    ColumnNumbers,
    NumberedField,
    decode_column_numbers,
    encode_column_numbers,
)
from frazil.model.policy import Evolution, OnDrop
from frazil.model.schema.types import Decimal, Field, Primitive, Schema, Struct, list_of
from frazil.model.source_table import SourceColumn, SourceTable

if TYPE_CHECKING:
    from frazil.model.schema.types import Type

P = Primitive


def column(number: int, name: str, type_: Type = P.INT, **more: Any) -> SourceColumn:
    return SourceColumn(number=number, name=name, type=type_, **more)


ID = column(1, "id")
NAME = column(2, "name", P.STRING)
PRICE = column(4, "price", Decimal(9, 2))
TAGS = column(5, "tags", list_of(0, P.INT))


def table(*columns: SourceColumn, key: tuple[int, ...] = (1,), highest: int = 0) -> SourceTable:
    found = columns or (ID, NAME, PRICE, TAGS)
    numbers = [each.number for each in found]
    return SourceTable(
        name="shop.orders",
        identity="identity",
        shape=f"shape of {numbers}",
        columns=found,
        key=key,
        highest_number=max(highest, *numbers),
    )


USERS = table()


def plan(
    source: SourceTable, current: ChangelogNow | None = None, **settings: Any
) -> ChangelogPlan:
    usual: dict[str, Any] = {
        "prefix": "cdc_",
        "on_drop": OnDrop.KEEP,
        "evolution": Evolution.PERMISSIVE,
    }
    return plan_changelog(source, current, **{**usual, **settings})


def after(before: ChangelogPlan, *, version: int = 3, **more: Any) -> ChangelogNow:
    """The changelog as that plan leaves it, under Iceberg's next schema id."""
    schema = replace(before.schema, schema_id=before.schema.schema_id + 1)
    used = [each.field.id for each in schema.columns()]
    used += [each["field"] for each in json.loads(before.columns)["columns"]]
    now = ChangelogNow(
        schema=schema, last_column_id=max(used), columns=before.columns, format_version=version
    )
    return replace(now, **more)


FIRST = plan(USERS)


def then(*columns: SourceColumn, key: tuple[int, ...] = (1,), **settings: Any) -> ChangelogPlan:
    return plan(table(*columns, key=key), after(FIRST), **settings)


def refusal(*columns: SourceColumn, key: tuple[int, ...] = (1,), **settings: Any) -> str:
    with pytest.raises(UnsupportedSchemaChangeError) as refused:
        then(*columns, key=key, **settings)
    assert refused.value.table == "shop.orders"
    return str(refused.value)


def names(found: ChangelogPlan) -> list[str]:
    return [each.name for each in found.schema.fields if not each.name.startswith("cdc_")]


def field_of(found: ChangelogPlan, number: int) -> Field:
    return next(each for each in found.schema.fields if each.id == found.field_ids[number])


def member_of(found: ChangelogPlan, number: int) -> Field:
    made = found.schema.by_id(found.key_ids[number])
    assert made is not None
    assert made.parents[0].name == "cdc_previous_key"
    return made.field


# A changelog that is new.


def test_a_new_changelog_has_the_sources_columns_and_then_ours() -> None:
    assert FIRST.is_new
    assert [each.name for each in FIRST.schema.fields] == [
        "id",
        "name",
        "price",
        "tags",
        "cdc_operation",
        "cdc_sequence_number",
        "cdc_timestamp",
        "cdc_lsn",
        "cdc_unchanged",
        "cdc_previous_key",
    ]
    assert FIRST.field_ids == {1: 1, 2: 2, 4: 3, 5: 4}
    assert member_of(FIRST, 1).name == "id"
    assert FIRST.changes == ()
    assert not FIRST.evolves


def test_the_property_has_numbers_fields_key_and_the_sources_shape() -> None:
    document = json.loads(FIRST.columns)
    assert document == {
        "version": 1,
        "key": [1],
        "highest": 5,
        "shape": USERS.shape,
        "columns": [
            {"number": 1, "field": 1, "previous": FIRST.key_ids[1]},
            {"number": 2, "field": 2},
            {"number": 4, "field": 3},
            {"number": 5, "field": 4},
        ],
    }


def test_a_new_changelog_keeps_no_default_because_a_copy_brings_every_row() -> None:
    made = plan(table(ID, column(2, "late", default=7), column(3, "rolled", rewrote=True)))
    assert all(each.initial_default is None for each in made.schema.fields)


def test_a_table_without_a_key_has_no_previous_key() -> None:
    made = plan(table(ID, key=()))
    assert made.key_ids == {}
    assert made.schema.by_name("cdc_previous_key") is None


def test_names_that_spark_takes_for_one_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedSchemaChangeError, match="id and Id would be one"):
        plan(table(ID, column(2, "Id")))


def test_a_column_called_like_ours_is_refused_also_later() -> None:
    with pytest.raises(ConfigError, match="CDC_lsn"):
        plan(table(ID, column(2, "CDC_lsn")))
    with pytest.raises(ConfigError, match="cdc_lsn"):
        then(ID, replace(NAME, name="cdc_lsn"), PRICE, TAGS)


# A changelog that follows.


def test_nothing_changes_while_the_table_is_the_same() -> None:
    now = after(FIRST)
    again = plan(USERS, now)
    assert not again.evolves
    assert again.schema == now.schema
    assert again.columns == FIRST.columns
    assert (again.changes, again.added, again.widened) == ((), (), ())
    assert (again.field_ids, again.key_ids) == (FIRST.field_ids, FIRST.key_ids)


def test_a_plan_keeps_the_id_of_the_schema_it_was_made_from() -> None:
    assert then(ID).schema.schema_id == 1


def test_a_new_column_comes_after_the_sources_others_with_its_default() -> None:
    late = column(6, "late", P.DATE, default="2024-02-29")
    made = then(*USERS.columns, late)
    assert names(made) == ["id", "name", "price", "tags", "late"]
    new = field_of(made, 6)
    assert (new.initial_default, new.write_default) == ("2024-02-29", "2024-02-29")
    assert not new.required
    assert new.id > max(each.field.id for each in FIRST.schema.columns())
    assert made.changes == ("late is added as date with a default",)
    assert made.added == ("late",)
    assert made.evolves


def test_new_lists_get_ids_of_their_own() -> None:
    made = then(*USERS.columns, column(6, "a", list_of(0, P.STRING)), column(7, "b"))
    ids = [each.field.id for each in made.schema.columns()]
    assert len(set(ids)) == len(ids)


def test_a_default_needs_a_table_that_keeps_it() -> None:
    late = column(6, "late", default=7)
    with pytest.raises(UnsupportedSchemaChangeError, match="only format version 3") as refused:
        plan(table(*USERS.columns, late), after(FIRST, version=2))
    assert refused.value.next_step == "frazil resync shop.orders"
    assert plan(table(*USERS.columns, column(6, "late")), after(FIRST, version=2)).evolves


def test_values_that_were_never_sent_mean_a_resync() -> None:
    rolled = column(6, "rolled", rewrote=True)
    text = refusal(*USERS.columns, rolled)
    assert "rolled is new, and older rows may have values in it" in text
    assert text.endswith("Next: frazil resync shop.orders")
    assert names(then(*USERS.columns, rolled, restart=True))[-1] == "rolled"


def test_a_column_that_is_known_may_be_marked_without_harm() -> None:
    assert not then(ID, replace(NAME, rewrote=True, default="x"), PRICE, TAGS).evolves


def test_a_column_older_than_the_changelog_was_hidden_and_means_a_resync() -> None:
    # A computed column that became a plain one: its values are there, and were never sent.
    text = refusal(ID, NAME, column(3, "total"), PRICE, TAGS)
    assert "total was not sent until now" in text
    behind = plan(table(ID, NAME, highest=3))
    with pytest.raises(UnsupportedSchemaChangeError, match="total was not sent until now"):
        plan(table(ID, NAME, column(3, "total")), after(behind))


def test_a_renamed_column_stays_the_same_field_also_in_the_previous_key() -> None:
    made = then(replace(ID, name="user_id"), NAME, PRICE, TAGS)
    assert field_of(made, 1) == Field(1, "user_id", P.INT)
    assert member_of(made, 1).name == "user_id"
    assert made.key_ids == FIRST.key_ids
    assert made.changes == (
        "id is renamed to user_id",
        "cdc_previous_key.id is renamed to cdc_previous_key.user_id",
    )


def test_two_columns_may_swap_their_names() -> None:
    made = then(ID, replace(NAME, name="price"), replace(PRICE, name="name"), TAGS)
    assert field_of(made, 2) == Field(2, "price", P.STRING)
    assert field_of(made, 4) == Field(3, "name", Decimal(9, 2))


@pytest.mark.parametrize(
    ("number", "wider"),
    [(1, P.LONG), (4, Decimal(18, 2)), (5, list_of(0, P.LONG))],
    ids=["int to long", "more digits", "inside a list"],
)
def test_a_type_may_widen(number: int, wider: Type) -> None:
    changed = [
        replace(each, type=wider) if each.number == number else each for each in USERS.columns
    ]
    made = then(*changed)
    assert made.widened == (USERS.column(number).name,)
    assert str(field_of(made, number).type) == str(wider)
    assert made.evolves
    if number == 1:
        assert member_of(made, 1).type is P.LONG


@pytest.mark.parametrize(
    ("new", "text"),
    [
        (replace(ID, type=P.STRING), "id changes from int to string"),
        (replace(PRICE, type=Decimal(9, 3)), "price changes from decimal(9, 2) to decimal(9, 3)"),
        (replace(PRICE, type=Decimal(8, 2)), "price changes from"),
        (replace(TAGS, type=P.STRING), "tags changes from list<int> to string"),
        (replace(TAGS, type=list_of(0, P.STRING)), "tags changes from list<int> to list<string>"),
    ],
    ids=["text", "scale", "narrower", "no list", "another list"],
)
def test_another_type_is_refused_except_in_a_new_copy(new: SourceColumn, text: str) -> None:
    changed = [new if each.number == new.number else each for each in USERS.columns]
    assert text in refusal(*changed)
    made = then(*changed, restart=True)
    assert field_of(made, new.number).id > after(FIRST).last_column_id
    assert str(field_of(made, new.number).type) == str(new.type)
    assert sorted(names(made)) == ["id", "name", "price", "tags"]
    if new.number == 1:
        assert member_of(made, 1).type is P.STRING


def test_every_difference_is_reported_at_once() -> None:
    text = refusal(replace(ID, type=P.STRING), replace(NAME, type=P.INT), PRICE, TAGS)
    assert "id changes from int to string; name changes from string to int" in text


def test_a_dropped_column_is_kept_and_reported_once() -> None:
    gone = then(ID, PRICE, TAGS)
    assert names(gone) == ["id", "name", "price", "tags"]
    assert gone.changes == ("name is gone at the source and is kept",)
    assert not gone.evolves
    assert set(gone.field_ids) == {1, 4, 5}
    entry = decode_column_numbers(gone.columns, table="t").columns[1]
    assert entry == NumberedField(number=2, field=2, dropped=True)
    again = plan(table(ID, PRICE, TAGS), after(gone))
    assert again.changes == ()
    assert again.columns == gone.columns


def test_a_dropped_column_goes_where_that_is_configured() -> None:
    gone = then(ID, PRICE, TAGS, on_drop=OnDrop.DROP)
    assert names(gone) == ["id", "price", "tags"]
    assert gone.changes == ("name is dropped",)
    assert not plan(table(ID, PRICE, TAGS), after(gone), on_drop=OnDrop.DROP).evolves


def test_a_dropped_column_goes_when_its_name_is_taken() -> None:
    again = column(6, "Name", P.STRING)
    made = then(ID, PRICE, TAGS, again)
    assert names(made) == ["id", "price", "tags", "Name"]
    assert field_of(made, 6).id != 2
    later = plan(table(ID, PRICE, TAGS, replace(again, name="nick")), after(then(ID, PRICE, TAGS)))
    assert names(later) == ["id", "name", "price", "tags", "nick"]


def test_what_the_changelog_is_partitioned_by_cannot_go() -> None:
    pinned = after(FIRST, pinned=frozenset({2}))
    with pytest.raises(UnsupportedSchemaChangeError, match="partitioned or sorted by it"):
        plan(table(ID, PRICE, TAGS), pinned, on_drop=OnDrop.DROP)
    assert plan(table(ID, PRICE, TAGS), pinned).changes


def test_a_dropped_column_that_comes_back_means_a_resync() -> None:
    gone = then(ID, PRICE, TAGS)
    with pytest.raises(UnsupportedSchemaChangeError, match="name was not sent until now"):
        plan(USERS, after(gone))
    revived = plan(USERS, after(gone), restart=True)
    assert field_of(revived, 2).id == 2


@pytest.mark.parametrize("key", [(2,), (1, 2), ()], ids=["another", "more", "none"])
def test_another_key_is_refused_except_in_a_new_copy(key: tuple[int, ...]) -> None:
    assert "the key changes from (id) to (" in refusal(*USERS.columns, key=key)
    made = then(*USERS.columns, key=key, restart=True)
    assert set(made.key_ids) == set(key)
    found = [each for each in made.schema.fields if each.name == "cdc_previous_key"]
    assert len(found) == bool(key)
    assert not set(made.key_ids.values()) & set(FIRST.key_ids.values())
    assert not plan(table(*USERS.columns, key=key), after(made)).evolves


def test_a_key_in_another_order_is_the_same_key() -> None:
    two = plan(table(*USERS.columns, key=(1, 2)))
    made = plan(table(*USERS.columns, key=(2, 1)), after(two))
    assert made.key_ids == two.key_ids
    assert not made.evolves


def test_a_first_key_is_a_change_of_key() -> None:
    keyless = plan(table(*USERS.columns, key=()))
    with pytest.raises(UnsupportedSchemaChangeError, match=r"from \(\) to \(id\)"):
        plan(USERS, after(keyless))
    assert plan(USERS, after(keyless), restart=True).key_ids


def test_strict_evolution_refuses_every_change_and_no_standstill() -> None:
    strict: dict[str, Any] = {"evolution": Evolution.STRICT}
    assert not then(**strict).evolves
    assert "evolution is strict: name is gone" in refusal(ID, PRICE, TAGS, **strict)
    text = refusal(*USERS.columns, column(6, "late"), **strict)
    assert "evolution is strict: late is added as int" in text
    assert "evolution is strict" in refusal(*USERS.columns, column(6, "x"), restart=True, **strict)


# What others did to the changelog.


def test_an_added_field_stays_and_a_required_one_is_refused() -> None:
    theirs = Field(50, "theirs", P.STRING)
    now = after(FIRST)
    fields = (theirs, *now.schema.fields)
    made = plan(
        table(*USERS.columns, column(6, "late")),
        replace(now, schema=replace(now.schema, fields=fields), last_column_id=50),
    )
    assert names(made) == ["theirs", "id", "name", "price", "tags", "late"]
    needed = (replace(theirs, required=True), *now.schema.fields)
    with pytest.raises(UnsupportedSchemaChangeError, match="theirs is required"):
        plan(USERS, replace(now, schema=replace(now.schema, fields=needed)))


def test_a_dropped_field_requires_a_resync() -> None:
    now = after(FIRST)
    fields = tuple(each for each in now.schema.fields if each.name != "name")
    torn = replace(now, schema=replace(now.schema, fields=fields))
    with pytest.raises(UnsupportedSchemaChangeError, match="name was dropped from the changelog"):
        plan(USERS, torn)
    assert field_of(plan(USERS, torn, restart=True), 2).id > now.last_column_id


@pytest.mark.parametrize("gone", ["cdc_operation", "cdc_previous_key"])
def test_our_own_columns_must_be_there(gone: str) -> None:
    now = after(FIRST)
    fields = tuple(each for each in now.schema.fields if each.name != gone)
    with pytest.raises(UnsupportedSchemaChangeError, match=gone):
        plan(USERS, replace(now, schema=replace(now.schema, fields=fields)))


def test_a_changed_previous_key_is_refused() -> None:
    now = after(FIRST)
    fields = tuple(
        replace(each, type=Struct((Field(90, "id", P.INT),)))
        if each.name == "cdc_previous_key"
        else each
        for each in now.schema.fields
    )
    with pytest.raises(UnsupportedSchemaChangeError, match="is not what the key"):
        plan(USERS, replace(now, schema=replace(now.schema, fields=fields)))


def test_without_the_property_only_a_new_copy_goes_on() -> None:
    bare = after(FIRST, columns=None)
    with pytest.raises(UnsupportedSchemaChangeError, match="lost its property"):
        plan(USERS, bare)
    made = plan(USERS, bare, restart=True)
    assert not made.evolves
    assert made.columns == FIRST.columns
    assert made.key_ids == FIRST.key_ids


def test_a_table_created_again_is_matched_by_name_in_a_new_copy() -> None:
    # The same columns under other numbers, and one more that has an old number.
    again = table(
        column(1, "email", P.STRING), column(2, "id"), column(3, "name", P.STRING), key=(2,)
    )
    made = plan(again, after(FIRST), restart=True)
    assert (made.field_ids[2], made.field_ids[3]) == (1, 2)
    assert made.field_ids[1] > 4
    assert made.key_ids[2] == FIRST.key_ids[1]
    # Numbers are counted from the copy on: what the old table had is no one's.
    grown = plan(table(*again.columns, column(4, "late"), key=(2,)), after(made))
    assert grown.added == ("late",)


# The property.


def test_the_property_survives_being_read() -> None:
    numbers = ColumnNumbers(
        columns=(
            NumberedField(number=1, field=3, previous=9),
            NumberedField(number=0, field=4, dropped=True),
        ),
        key=(1,),
        highest=7,
        shape='{"it\'s": "theirs"}',
    )
    assert decode_column_numbers(encode_column_numbers(numbers), table="t") == numbers


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"version":0}',
        '{"version":1,"key":[1],"highest":1,"shape":"","columns":[]}',
        '{"version":1,"key":[],"highest":1,"shape":null,"columns":[]}',
        '{"version":1,"key":[],"highest":1,"shape":"","columns":[{"number":1}]}',
        '{"version":1,"key":[],"fields":[{"changelog":1,"mirror":1}]}',
        '{"version":1,"key":[],"highest":2,"shape":"","columns":'
        '[{"number":1,"field":1},{"number":1,"field":2}]}',
        '{"version":1,"key":[],"highest":2,"shape":"","columns":'
        '[{"number":1,"field":1},{"number":2,"field":1}]}',
    ],
)
def test_what_is_not_ours_is_refused(text: str) -> None:
    with pytest.raises(UnsupportedSchemaChangeError, match=r"frazil\.columns") as refused:
        decode_column_numbers(text, table="shop.orders")
    assert refused.value.next_step is not None
    assert "frazil resync shop.orders" in refused.value.next_step


def test_a_schema_without_any_field_of_ours_is_no_changelog() -> None:
    now = ChangelogNow(
        schema=Schema(3, (Field(1, "id", P.INT),)), last_column_id=1, columns=None, format_version=3
    )
    with pytest.raises(UnsupportedSchemaChangeError, match="lacks the column cdc_operation"):
        plan(table(ID), now, restart=True)
