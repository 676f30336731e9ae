"""The columns of a changelog that a merge reads for itself."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from frazil import errors
from frazil.changelog.layout import changelog_schema
from frazil.merge.planning import changes
from frazil.model.schema.types import Decimal, Field, Primitive, Schema, Struct, list_of
from tests.unit.merge.planning.plan_facts import SCHEMA, SETTINGS, changelog, planned, snapshot

if TYPE_CHECKING:
    from frazil.model.schema.types import Type
    from frazil.model.table_facts import ChangelogFacts

P = Primitive


def with_field(name: str, type_: Type) -> ChangelogFacts:
    fields = tuple(
        replace(each, type=type_) if each.name == name else each for each in SCHEMA.fields
    )
    return changelog(snapshot(1), schema=replace(SCHEMA, fields=fields))


def test_every_column_that_is_missing_is_named_at_once() -> None:
    settings = replace(SETTINGS, key=("id", "tenant"), sequence="seq", operation="op")
    with pytest.raises(errors.ConfigError) as refused:
        planned(changelog(snapshot(1)), settings=settings)
    assert refused.value.mistakes == (
        "there is no key column 'tenant'",
        "there is no sequence column 'seq'",
        "there is no operation column 'op'",
    )
    assert "cdc_sequence_number string" in str(refused.value)


def test_columns_are_found_without_regard_to_case_where_that_is_clear() -> None:
    settings = replace(SETTINGS, key=("ID",), sequence="CDC_Sequence_Number")
    plan = planned(changelog(snapshot(1)), settings=settings)
    assert plan is not None
    assert [each.name for each in (*plan.reads.key, plan.reads.sequence)] == [
        "id",
        "cdc_sequence_number",
    ]
    ambiguous = replace(SCHEMA, fields=(*SCHEMA.fields, Field(20, "ID", P.LONG)))
    with pytest.raises(errors.ConfigError, match="no key column 'Id'"):
        planned(changelog(snapshot(1), schema=ambiguous), settings=replace(SETTINGS, key=("Id",)))


@pytest.mark.parametrize(
    "type_",
    [P.STRING, P.INT, P.LONG, P.TIMESTAMP, P.TIMESTAMPTZ, Decimal(20, 0)],
    ids=str,
)
def test_a_sequence_has_a_type_with_one_order(type_: Type) -> None:
    plan = planned(with_field("cdc_sequence_number", type_))
    assert plan is not None
    assert plan.sequence_type == type_


@pytest.mark.parametrize(
    "type_", [P.DATE, P.DOUBLE, P.BINARY, P.UUID, P.BOOLEAN, list_of(30, P.INT)], ids=str
)
def test_other_types_are_no_sequence(type_: Type) -> None:
    with pytest.raises(errors.ConfigError, match="the sequence column 'cdc_sequence_number' is"):
        planned(with_field("cdc_sequence_number", type_))


@pytest.mark.parametrize(
    ("name", "type_", "said"),
    [
        ("cdc_operation", P.INT, "'cdc_operation' is int, not text"),
        ("cdc_unchanged", list_of(30, P.STRING), "'cdc_unchanged' is list<string>, not list<int>"),
        ("cdc_unchanged", P.STRING, "'cdc_unchanged' is string, not list<int>"),
        ("cdc_previous_key", P.LONG, "'cdc_previous_key' is long, not struct<id: long>"),
        ("cdc_previous_key", Struct(()), "not struct<id: long>"),
        (
            "cdc_previous_key",
            Struct((Field(30, "id", P.STRING),)),
            "'cdc_previous_key' is struct<id: string>, not struct<id: long>",
        ),
        (
            "cdc_previous_key",
            Struct((Field(30, "id", list_of(31, P.INT)),)),
            "not struct<id: long>",
        ),
        ("id", list_of(30, P.INT), "'id' is list<int>, which is no single value"),
    ],
)
def test_a_column_of_another_type_is_refused_and_not_ignored(
    name: str, type_: Type, said: str
) -> None:
    with pytest.raises(errors.ConfigError) as refused:
        planned(with_field(name, type_))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ((), "the key has no columns"),
        (("id", "ID"), "the key names a column twice"),
        (("cdc_lsn",), "the key column 'cdc_lsn' is none of the source's"),
    ],
)
def test_a_key_is_made_of_columns_of_the_source(key: tuple[str, ...], said: str) -> None:
    settings = replace(SETTINGS, key=key, previous_key="not there")
    with pytest.raises(errors.ConfigError) as refused:
        planned(changelog(snapshot(1)), settings=settings)
    assert said in str(refused.value)


def test_columns_for_partial_rows_may_be_missing() -> None:
    own = SCHEMA.fields[:5]
    plan = planned(changelog(snapshot(1), schema=Schema(0, own)))
    assert plan is not None
    reads = plan.reads
    assert (reads.unchanged, reads.previous_key, reads.previous_members) == (None, None, ())


def with_previous(*members: Field) -> ChangelogFacts:
    fields = (
        Field(1, "a", P.LONG),
        Field(2, "b", P.STRING),
        Field(3, "c", P.LONG),
        Field(4, "cdc_operation", P.STRING),
        Field(5, "cdc_sequence_number", P.STRING),
        Field(6, "cdc_previous_key", Struct(members)),
        Field(20, "cdc_unchanged", list_of(21, P.LONG)),
    )
    return changelog(snapshot(1), schema=Schema(0, fields))


@pytest.mark.parametrize(
    ("key", "names", "paired"),
    [
        (("a", "b", "c"), ("a", "b", "c"), ("a", "b", "c")),
        (("c", "b", "a"), ("a", "b", "c"), ("c", "b", "a")),
        # A struct keeps the names that it was made with.
        (("a", "b", "c"), ("a", "old", "c"), ("a", "old", "c")),
        (("c", "b", "a"), ("a", "old", "c"), ("c", "old", "a")),
        (("a", "b", "c"), ("x", "b", "y"), ("x", "b", "y")),
        # Two are called otherwise, and the order is not the same either.
        (("b", "a", "c"), ("x", "b", "y"), None),
    ],
)
def test_the_previous_key_is_paired_by_name_and_then_by_order(
    key: tuple[str, ...], names: tuple[str, ...], paired: tuple[str, ...] | None
) -> None:
    types = {"a": P.INT, "b": P.STRING, "old": P.STRING, "c": P.LONG, "x": P.LONG, "y": P.LONG}
    members = (Field(9 + at, name, types[name]) for at, name in enumerate(names))
    facts = with_previous(*members)
    settings = replace(SETTINGS, key=key)
    if paired is None:
        with pytest.raises(errors.ConfigError, match="cdc_previous_key"):
            planned(facts, settings=settings)
        return
    plan = planned(facts, settings=settings)
    assert plan is not None
    reads = plan.reads
    assert reads.previous_key is not None
    assert reads.previous_key.name == "cdc_previous_key"
    assert tuple(each.name for each in reads.previous_members) == paired
    assert reads.unchanged is not None
    assert reads.unchanged.name == "cdc_unchanged"


def with_column(name: str) -> ChangelogFacts:
    fields = (*SCHEMA.fields, Field(99, name, P.STRING))
    return changelog(snapshot(1), schema=Schema(0, fields))


TAKEN = [
    *(
        value
        for name, value in vars(changes).items()
        if name.isupper() and str(value) == value and name != "APPEND_STEP"
    ),
    "__frazil_task",
    "__frazil_is_null_x",
    "__FRAZIL_HI",
    "_file",
    "_pos",
    "_partition",
    "_deleted",
    "_row_id",
    "_Spec_Id",
]


@pytest.mark.parametrize("name", TAKEN)
def test_a_column_called_like_one_of_ours_or_of_icebergs_is_refused_by_name(name: str) -> None:
    with pytest.raises(errors.ConfigError, match="RENAME COLUMN") as refused:
        planned(with_column(name))
    assert repr(name) in str(refused.value)
    with pytest.raises(errors.ConfigError) as refused:
        changelog_schema([Field(1, "id", P.LONG), Field(2, name, P.STRING)], ["id"])
    assert repr(name) in str(refused.value)


@pytest.mark.parametrize("name", ["hi", "lo", "row", "rows", "c0", "_0", "frazil_hi", "_files"])
def test_other_names_are_allowed(name: str) -> None:
    assert planned(with_column(name)) is not None
