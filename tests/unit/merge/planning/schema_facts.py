"""A changelog's schema and its mirror's, for the tests of how one follows the other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from frazil.errors import UnsupportedSchemaChangeError
from frazil.merge.planning.schema_mapping import SchemaPlan, plan_schema
from frazil.merge.planning.settings import MergeSettings
from frazil.model.policy import Deletes, Evolution, OnDrop, Order
from frazil.model.schema.types import Decimal, Field, Primitive, Schema, Struct, list_of, map_of
from frazil.model.table_name import TableName

P = Primitive
SETTINGS = MergeSettings(
    changelog=TableName("lake", ("shop",), "users_changelog"),
    mirror=TableName("lake", ("shop",), "users"),
    key=("id",),
)
DROPPING = replace(SETTINGS, on_drop=OnDrop.DROP)
STRICT = replace(SETTINGS, evolution=Evolution.STRICT)
SOFT = replace(SETTINGS, deletes=Deletes.SOFT)
PER_KEY = replace(SETTINGS, order=Order.PER_KEY)
USER_ID = replace(SETTINGS, key=("user_id",))

ID = Field(11, "id", P.INT)
NAME = Field(12, "name", P.STRING)
PRICE = Field(13, "price", Decimal(9, 2))
POINT = Field(14, "point", Struct((Field(21, "x", P.FLOAT), Field(22, "y", P.INT, required=True))))
TAGS = Field(15, "tags", list_of(23, P.INT))
SIZES = Field(16, "sizes", map_of(24, P.STRING, 25, P.INT))
SOURCE = (ID, NAME, PRICE, POINT, TAGS, SIZES)
ID_REQUIRED = Field(1, "id", P.INT, required=True)
NAME_2 = Field(2, "name", P.STRING)
OURS = (
    Field(31, "cdc_operation", P.STRING, required=True),
    Field(32, "cdc_sequence_number", P.STRING, required=True),
    Field(33, "cdc_timestamp", P.TIMESTAMPTZ),
    Field(34, "CDC_LSN", P.STRING),
    Field(35, "cdc_unchanged", list_of(36, P.INT, required=True)),
    Field(37, "cdc_previous_key", Struct((Field(38, "id", P.INT),))),
)


def changelog(*fields: Field) -> Schema:
    return Schema(4, (*fields, *OURS))


def last_id(schema: Schema) -> int:
    return max(each.field.id for each in schema.columns())


def first(*fields: Field, settings: MergeSettings = SETTINGS) -> SchemaPlan:
    return plan_schema(changelog(*(fields or SOURCE)), None, None, settings)


def then(
    before: SchemaPlan, *fields: Field, settings: MergeSettings = SETTINGS, version: int = 3
) -> SchemaPlan:
    """The plan for a mirror that was left as ``before`` says."""
    return plan_schema(
        changelog(*fields),
        before.mirror,
        before.columns,
        settings,
        last_column_id=last_id(before.mirror),
        format_version=version,
    )


def changed(field: Field, among: tuple[Field, ...] = SOURCE) -> tuple[Field, ...]:
    return tuple(field if each.id == field.id else each for each in among)


def names(plan: SchemaPlan) -> list[str]:
    return [each.name for each in plan.mirror.fields]


def refusal(before: SchemaPlan, *fields: Field, settings: MergeSettings = SETTINGS) -> str:
    with pytest.raises(UnsupportedSchemaChangeError) as refused:
        then(before, *fields, settings=settings)
    assert refused.value.table == "shop.users"
    return str(refused.value)
