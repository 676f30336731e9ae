"""What a table with rows may become."""

from __future__ import annotations

import pytest

from frazil.errors import UnsupportedSchemaChangeError
from frazil.model.schema.change import Add, plan_evolution
from frazil.model.schema.types import Field, Primitive, Schema, Struct

CURRENT = Schema(0, (Field(1, "id", Primitive.LONG, required=True),))


def wanting(*new: Field) -> Schema:
    return Schema(0, (*CURRENT.fields, *new))


def test_a_new_column_with_a_new_id_is_one_step() -> None:
    new = Field(6, "added", Primitive.INT, initial_default=3, write_default=3)
    change = plan_evolution(CURRENT, wanting(new), last_column_id=5, format_version=3)
    assert change.steps == (Add(new, None, 1),)


@pytest.mark.parametrize(
    "new",
    [
        Field(5, "again", Primitive.INT),
        Field(6, "point", Struct((Field(4, "x", Primitive.INT),))),
    ],
    ids=["column", "member"],
)
def test_the_id_of_a_dropped_column_is_not_given_again(new: Field) -> None:
    with pytest.raises(UnsupportedSchemaChangeError, match="has given ids up to 5"):
        plan_evolution(CURRENT, wanting(new), last_column_id=5, format_version=3)


def test_a_default_needs_the_newer_format() -> None:
    new = Field(6, "added", Primitive.INT, initial_default=3, write_default=3)
    with pytest.raises(UnsupportedSchemaChangeError, match="format version 2"):
        plan_evolution(CURRENT, wanting(new), last_column_id=5, format_version=2)
