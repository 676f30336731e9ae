"""What a mirror's schema cannot follow, what others did to it, and any history of a source."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.errors import UnsupportedSchemaChangeError
from frazil.merge.planning.column_mapping import (
    ColumnOrigin,
    decode_columns,
)
from frazil.merge.planning.schema_mapping import DELETED_COLUMN, SchemaPlan, plan_schema
from frazil.model.policy import Evolution, OnDrop
from frazil.model.schema.change import plan_evolution
from frazil.model.schema.types import Decimal, Field, Primitive, Schema, Struct, list_of, map_of
from tests.support.sampling import examples
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
    USER_ID,
    changed,
    changelog,
    first,
    last_id,
    names,
    refusal,
    then,
)

if TYPE_CHECKING:
    from frazil.merge.planning.settings import MergeSettings

P = Primitive


# What cannot be followed.


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (replace(ID, type=P.STRING), "id changes from int to string"),
        (replace(NAME, type=P.INT), "name changes from string to int"),
        (replace(PRICE, type=Decimal(12, 3)), "price changes from decimal(9, 2) to decimal(12, 3)"),
        (replace(POINT, type=P.STRING), "point changes from struct<x: float, y: int> to string"),
        (replace(TAGS, type=POINT.type), "tags changes from list<int> to struct<"),
        (replace(TAGS, type=list_of(23, P.STRING)), "tags.element changes from int to string"),
        (
            replace(SIZES, type=map_of(24, P.LONG, 25, P.INT)),
            "sizes changes its key from string to long",
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Field) else "",
)
def test_other_types_are_refused_with_the_difference(field: Field, message: str) -> None:
    text = refusal(first(), *changed(field))
    assert message in text
    assert text.count("cannot follow") == 1
    assert "drop the mirror shop.users: the next merge rebuilds it" in text


def test_every_difference_is_spelled_out_at_once() -> None:
    fields = (replace(ID, type=P.STRING), replace(NAME, type=P.INT), Field(17, "Price", P.INT))
    before = first(ID, NAME)
    foreign = replace(before.mirror, fields=(*before.mirror.fields, Field(9, "price", P.DATE)))
    text = refusal(replace(before, mirror=foreign), *fields)
    assert "price and Price would be one column to Spark" in text
    assert "id changes from int to string" in text
    assert "name changes from string to int" in text


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ((*SOURCE, Field(17, "note", P.INT)), "note is added as int"),
        ((ID, *SOURCE[2:]), "name was dropped at the source and is kept"),
        (changed(replace(NAME, name="n")), "name is renamed to n"),
        ((*SOURCE[1:], ID), "id moves behind sizes"),
        (changed(replace(ID, type=P.LONG)), "id becomes long"),
    ],
)
def test_strict_evolution_refuses_every_difference(fields: tuple[Field, ...], message: str) -> None:
    text = refusal(first(), *fields, settings=STRICT)
    assert message in text
    assert "evolution is strict" in text


def test_another_key_is_refused() -> None:
    other = replace(SETTINGS, key=("name",))
    assert "the key changes from (id) to (name)" in refusal(first(), *SOURCE, settings=other)
    wider = replace(SETTINGS, key=("name", "id"))
    assert "the key changes from (id) to (id, name)" in refusal(first(), *SOURCE, settings=wider)


def test_another_key_is_refused_where_iceberg_does_not_know_the_key() -> None:
    weight = Field(17, "weight", P.DOUBLE)
    chosen = replace(SETTINGS, key=("weight",))
    before = first(ID, weight, settings=chosen)
    assert before.mirror.identifier_ids == frozenset()
    assert "the key changes from (weight) to (id)" in refusal(before, ID, weight)
    assert then(before, ID, weight, settings=chosen).changes == ()


def test_a_key_column_that_is_new_at_the_source_is_refused() -> None:
    chosen = replace(SETTINGS, key=("tenant",))
    fields = (Field(17, "tenant", P.INT), NAME)
    text = refusal(first(ID, NAME), *fields, settings=chosen)
    assert "the key column tenant is not in the mirror" in text
    assert "id is part of the key and becomes optional" in text


# What others did to the mirror.


def test_columns_of_others_are_left_where_they_are() -> None:
    before = first(ID, NAME)
    theirs = Field(9, "theirs", P.DATE)
    fields = (theirs, *before.mirror.fields)
    foreign = replace(before, mirror=replace(before.mirror, fields=fields))
    for chosen in (STRICT, DROPPING):
        plan = then(foreign, ID, NAME, settings=chosen)
        assert (plan.wanted, plan.changes) == (None, ())
        assert plan.projection[0] == (theirs, None)
    later = then(foreign, Field(17, "new", P.INT), ID, NAME)
    assert names(later) == ["theirs", "new", "id", "name"]


def test_a_column_of_others_that_nothing_can_fill_is_refused() -> None:
    before = first(ID, NAME)
    fields = (*before.mirror.fields, Field(9, "theirs", P.DATE, required=True))
    foreign = replace(before, mirror=replace(before.mirror, fields=fields))
    assert "theirs is required" in refusal(foreign, ID, NAME)


def test_a_column_dropped_from_the_mirror_is_not_added_again() -> None:
    before = first(ID, NAME, PRICE)
    without = replace(before.mirror, fields=(before.mirror.fields[0], before.mirror.fields[2]))
    text = refusal(replace(before, mirror=without), ID, NAME, PRICE)
    assert "name was dropped from the mirror" in text


def test_a_rename_by_others_is_undone() -> None:
    before = first(ID, NAME)
    other = replace(before.mirror, fields=(ID_REQUIRED, replace(NAME_2, name="theirs")))
    plan = then(replace(before, mirror=other), ID, NAME)
    assert plan.changes == ("theirs is renamed to name",)


# A mirror that was created by hand.


def by_name(mirror: Schema, *fields: Field, settings: MergeSettings = SETTINGS) -> SchemaPlan:
    return plan_schema(
        changelog(*fields), mirror, None, settings, last_column_id=last_id(mirror), format_version=3
    )


def test_a_mirror_made_by_hand_is_mapped_by_name_once() -> None:
    inner = Struct((Field(50, "y", P.INT, required=True), Field(51, "x", P.FLOAT)))
    mirror = Schema(
        7,
        (
            Field(43, "theirs", P.DATE),
            Field(40, "ID", P.LONG, required=True),
            Field(41, "point", inner),
            Field(42, "tags", list_of(52, P.INT)),
            Field(44, "sizes", map_of(53, P.STRING, 54, P.INT)),
        ),
    )
    plan = by_name(mirror, ID, POINT, TAGS, SIZES)
    assert plan.unchanged_ids == {11: 40, 14: 41, 15: 42, 16: 44}
    assert plan.mirror.schema_id == 7
    assert plan.changes == ("ID is renamed to id", "point.x moves to the front")
    mapped = decode_columns(plan.columns, table="t")
    assert {each.changelog: each.mirror for each in mapped.fields} == {
        **plan.unchanged_ids,
        22: 50,
        21: 51,
        23: 52,
        24: 53,
        25: 54,
    }
    # From then on by id.
    renamed = then(plan, replace(ID, name="user_id"), POINT, TAGS, SIZES, settings=USER_ID)
    assert renamed.mirror.fields[1].id == 40


def test_a_mirror_made_by_hand_gets_the_columns_it_lacks() -> None:
    plan = by_name(Schema(0, (ID_REQUIRED,)), ID, NAME)
    assert plan.changes == ("name is added as string",)
    assert plan.unchanged_ids == {11: 1, 12: 2}


def test_a_mirror_made_by_hand_with_another_key_is_refused() -> None:
    mirror = Schema(0, (ID_REQUIRED, replace(NAME_2, required=True)), frozenset({2}))
    with pytest.raises(UnsupportedSchemaChangeError, match=r"from \(name\) to \(id\)"):
        by_name(mirror, ID, NAME)


def test_a_mirror_made_by_hand_with_another_type_is_refused() -> None:
    mirror = Schema(0, (ID_REQUIRED, Field(2, "point", P.STRING)))
    with pytest.raises(UnsupportedSchemaChangeError, match="point changes from string to struct"):
        by_name(mirror, ID, POINT)


# The flag of soft deletes.


def test_the_flag_is_added_when_deletes_become_soft_and_stays_afterwards() -> None:
    plan = then(first(ID, NAME), ID, NAME, settings=SOFT)
    assert plan.deleted == Field(3, DELETED_COLUMN, P.BOOLEAN)
    assert plan.changes == (f"{DELETED_COLUMN} is added as boolean",)
    same = then(plan, ID, NAME, settings=replace(SOFT, evolution=Evolution.STRICT))
    assert (same.deleted, same.columns) == (plan.deleted, plan.columns)
    hard = then(plan, ID, NAME)
    assert (hard.deleted, hard.changes, hard.columns) == (None, (), plan.columns)
    assert hard.mappings[-1].origin is ColumnOrigin.NOTHING
    # Rows that were marked before stay so: a delete that comes again is compared with it.
    assert hard.flag == plan.flag == plan.deleted
    assert first(ID, NAME).flag is None
    dropped = replace(plan, mirror=replace(plan.mirror, fields=plan.mirror.fields[:-1]))
    assert then(dropped, ID, NAME).flag is None


def test_the_flag_of_a_mirror_made_by_hand_is_taken_by_its_name() -> None:
    flag = Field(5, DELETED_COLUMN.upper(), P.BOOLEAN, required=True)
    plan = by_name(Schema(0, (ID_REQUIRED, flag)), ID, settings=SOFT)
    assert (plan.deleted, plan.changes) == (flag, ())


def test_a_column_of_others_called_like_the_flag_is_refused() -> None:
    taken = Field(5, DELETED_COLUMN, P.STRING)
    with pytest.raises(UnsupportedSchemaChangeError, match="would be one column to Spark"):
        by_name(Schema(0, (ID_REQUIRED, taken)), ID, settings=SOFT)


@pytest.mark.fault("N30")
def test_the_sequence_comes_with_the_order_and_stays_when_that_changes() -> None:
    per_key = then(first(ID, NAME), ID, NAME, settings=PER_KEY)
    assert per_key.changes == ("cdc_sequence_number is added as string",)
    assert per_key.sequence == Field(3, "cdc_sequence_number", P.STRING)
    append = then(per_key, ID, NAME)
    assert append.sequence == per_key.sequence
    assert append.projection[-1][1] == "cdc_sequence_number"
    assert append.changes == ()
    back = then(append, ID, NAME, settings=PER_KEY)
    assert back.sequence == per_key.sequence


# Any history of a source.


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[Field, ...]]:
    """Schemas of a source, each made from the last by adding, dropping, renaming, reordering."""
    fields: list[Field] = [ID, NAME]
    schemas = [tuple(fields)]
    for number in range(draw(st.integers(1, 6))):
        new = range(draw(st.integers(0, 2)))
        fields += [Field(100 + 10 * number + at, f"f{number}_{at}", P.INT) for at in new]
        victims = [each for each in fields if each != ID]
        if draw(st.booleans()) and victims:
            fields.remove(draw(st.sampled_from(victims)))
        for at, each in enumerate(fields):
            match draw(st.integers(0, 5)):
                case 0 if each.id != ID.id:
                    fields[at] = replace(each, name=f"again_{at}")
                case 1 if each.type is P.INT and each.id != ID.id:
                    fields[at] = replace(each, type=P.LONG)
        fields = list(draw(st.permutations(fields)))
        if len({each.name for each in fields}) == len(fields):
            schemas.append(tuple(fields))
    return schemas


@examples(200)
@given(
    schemas=histories(),
    chosen=st.sampled_from([SETTINGS, DROPPING, SOFT, PER_KEY]),
    version=st.sampled_from([2, 3]),
)
def test_whatever_the_source_does_every_column_keeps_its_field(
    schemas: list[tuple[Field, ...]], chosen: MergeSettings, version: int
) -> None:
    plan = first(*schemas[0], settings=chosen)
    last, given_ids = last_id(plan.mirror), dict(plan.unchanged_ids)
    for fields in schemas[1:]:
        before = plan
        plan = plan_schema(
            changelog(*fields),
            before.mirror,
            before.columns,
            chosen,
            last_column_id=last,
            format_version=version,
        )
        plan_evolution(before.mirror, plan.mirror, last_column_id=last, format_version=version)
        mapped = {
            each.source.name: each.target for each in plan.mappings if each.source is not None
        }
        assert {each.name: (each.name, each.type) for each in fields}.items() <= {
            name: (target.name, target.type) for name, target in mapped.items()
        }.items()
        new = {source: id_ for source, id_ in plan.unchanged_ids.items() if source not in given_ids}
        assert all(id_ > last for id_ in new.values())
        given_ids |= new
        assert all(given_ids[source] == id_ for source, id_ in plan.unchanged_ids.items())
        if chosen.on_drop is OnDrop.KEEP:
            assert {each.id for each in before.mirror.fields} <= {
                each.id for each in plan.mirror.fields
            }
        last = max(last, last_id(plan.mirror))
        assert then(plan, *fields, settings=chosen, version=version).changes == ()
