"""The property that maps fields of the changelog to the mirror."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.errors import UnsupportedSchemaChangeError
from frazil.merge.planning.column_mapping import (
    RecordedColumns,
    RecordedField,
    decode_columns,
    encode_columns,
)
from frazil.model.schema.types import Primitive
from tests.unit.merge.planning.schema_facts import (
    ID,
    NAME,
    SOURCE,
    first,
    then,
)

P = Primitive


def test_the_number_of_a_source_attribute_is_kept() -> None:
    before = first(ID, NAME)
    document = json.loads(before.columns)
    document["fields"][1]["attribute"] = 7
    plan = then(replace(before, columns=json.dumps(document)), ID, replace(NAME, name="n"))
    assert json.loads(plan.columns)["fields"][1] == {"changelog": 12, "mirror": 2, "attribute": 7}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{}",
        '{"version":0,"key":[],"fields":[]}',
        '{"version":1,"key":[],"fields":[{"changelog":1}]}',
        '{"version":1,"key":[],"fields":[7]}',
        '{"version":1,"key":["x"],"fields":[]}',
        '{"1":1}',
    ],
)
def test_a_map_that_cannot_be_read_is_not_guessed(text: str) -> None:
    with pytest.raises(UnsupportedSchemaChangeError, match=r"frazil\.columns") as refused:
        then(replace(first(), columns=text), *SOURCE)
    assert "by name once" in str(refused.value)


MAPPED = st.builds(
    RecordedField,
    changelog=st.integers(1, 2000),
    mirror=st.integers(1, 2000),
    attribute=st.none() | st.integers(1, 1600),
    dropped=st.booleans(),
)


@given(
    fields=st.lists(MAPPED, max_size=8, unique_by=lambda each: each.mirror),
    key=st.lists(st.integers(1, 9), max_size=3).map(tuple),
    deleted=st.none() | st.integers(1, 9),
)
def test_a_map_is_read_as_it_was_written(
    fields: list[RecordedField], key: tuple[int, ...], deleted: int | None
) -> None:
    ordered = tuple(sorted(fields, key=lambda each: each.mirror))
    columns = RecordedColumns(fields=ordered, key=key, deleted=deleted)
    assert decode_columns(encode_columns(columns), table="t") == columns
