"""The schema of a changelog, its operations and field ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.changelog.layout import CdcColumns, changelog_schema, number_fields
from frazil.errors import ConfigError, UnsupportedSchemaChangeError
from frazil.model.change import Operation, SequenceNumber, spellings
from frazil.model.schema.types import Decimal, Field, Primitive, Schema, Struct, list_of, map_of
from tests.support.ingest.sequences import parse_sequence

ID = Field(41, "id", Primitive.LONG, required=True)
REGION = Field(9, "region", Primitive.STRING, required=True, write_default="eu")
NAME = Field(7, "name", Primitive.STRING)

sequences = st.builds(
    SequenceNumber,
    st.integers(0, 2**16 - 1),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
)


@given(sequences, sequences)
def test_sequence_numbers_sort_as_text_in_source_order(
    one: SequenceNumber, other: SequenceNumber
) -> None:
    assert (one < other) == (str(one) < str(other))
    assert (one == other) == (str(one) == str(other))


@given(sequences)
def test_a_sequence_number_survives_its_text(number: SequenceNumber) -> None:
    assert parse_sequence(str(number)) == number


def test_the_text_of_a_sequence_number_is_the_published_one() -> None:
    assert str(SequenceNumber(1, 0x1A2B3C4D, 7)) == "0001/000000001a2b3c4d/0000000000000007"


@pytest.mark.parametrize("numbers", [(-1, 0, 0), (2**16, 0, 0), (0, 2**64, 0), (0, 0, 2**64)])
def test_a_number_that_does_not_fit_its_digits_is_refused(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="epoch"):
        SequenceNumber(*numbers)


@pytest.mark.parametrize(
    ("texts", "operation"),
    [
        ("READ R", Operation.READ),
        ("INSERT I C", Operation.INSERT),
        ("UPDATE U", Operation.UPDATE),
        ("DELETE D", Operation.DELETE),
        ("TRUNCATE T", Operation.TRUNCATE),
    ],
)
def test_operations_are_known_in_every_spelling_in_use(texts: str, operation: Operation) -> None:
    assert set(spellings(operation)) == set(texts.split())


def test_a_changelog_has_the_source_columns_first_and_ours_behind_them() -> None:
    schema = changelog_schema([ID, REGION, NAME], ["region", "id"])
    assert [(each.id, each.name, each.type, each.required) for each in schema.fields] == [
        (1, "id", Primitive.LONG, False),
        (2, "region", Primitive.STRING, False),
        (3, "name", Primitive.STRING, False),
        (4, "cdc_operation", Primitive.STRING, True),
        (5, "cdc_sequence_number", Primitive.STRING, True),
        (6, "cdc_timestamp", Primitive.TIMESTAMPTZ, False),
        (7, "cdc_lsn", Primitive.STRING, False),
        (8, "cdc_unchanged", list_of(10, Primitive.INT, required=True), False),
        (
            9,
            "cdc_previous_key",
            Struct((Field(11, "region", Primitive.STRING), Field(12, "id", Primitive.LONG))),
            False,
        ),
    ]
    assert schema.identifier_ids == frozenset()


def test_a_changelog_without_a_key_has_no_previous_key() -> None:
    names = [each.name for each in changelog_schema([NAME], [], "_cdc_").fields]
    assert names == ["name", *CdcColumns("_cdc_").names[:-1]]


def test_nested_columns_are_numbered_after_their_siblings() -> None:
    nested = Field(0, "points", list_of(0, Struct((Field(0, "x", Decimal(9, 2)), NAME))))
    pairs = Field(0, "pairs", map_of(0, Primitive.STRING, 0, Primitive.LONG))
    numbered = number_fields([nested, pairs, ID], first_id=5)
    assert [(column.name, column.field.id) for column in Schema(0, numbered).columns()] == [
        ("points", 5),
        ("points.element", 8),
        ("points.element.x", 9),
        ("points.element.name", 10),
        ("pairs", 6),
        ("pairs.key", 11),
        ("pairs.value", 12),
        ("id", 7),
    ]


@pytest.mark.parametrize("name", ["cdc_lsn", "CDC_Operation", "cdc_previous_key"])
def test_a_source_column_called_like_ours_is_refused_with_the_setting(name: str) -> None:
    with pytest.raises(ConfigError, match=r"changelog\.column_prefix is 'cdc_'") as caught:
        changelog_schema([ID, Field(2, name, Primitive.STRING)], ["id"])
    assert name in str(caught.value)
    renamed = changelog_schema([ID, Field(2, name, Primitive.STRING)], ["id"], "_x_")
    assert renamed.fields[1].name == name


def test_a_key_column_must_be_there() -> None:
    with pytest.raises(UnsupportedSchemaChangeError, match="'nr' is not among"):
        changelog_schema([ID], ["nr"])
