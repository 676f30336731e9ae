"""Defaults in Iceberg's JSON form, there and back."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal as Number
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
import pytest

from frazil.clients.iceberg.write.arrow_schema import arrow_schema
from frazil.codec.iceberg_json import default_from_json, default_to_json
from frazil.model.schema.types import Decimal, Field, Fixed, Primitive, Schema, list_of

if TYPE_CHECKING:
    from frazil.model.schema.types import Default, Type

P = Primitive
SOME_UUID = UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")


def arrow_type(type_: Type) -> pa.DataType:
    return arrow_schema(Schema(0, (Field(1, "x", type_),))).field(0).type


@pytest.mark.parametrize(
    ("type_", "value", "default"),
    [
        (P.BOOLEAN, True, True),
        (P.INT, -7, -7),
        (P.LONG, 2**63 - 1, 2**63 - 1),
        (P.FLOAT, 0.5, 0.5),
        (P.DOUBLE, 5.0, 5.0),
        (P.DATE, date(1, 1, 1), "0001-01-01"),
        (P.TIMESTAMP, datetime.fromisoformat("2024-02-29 12:00"), "2024-02-29T12:00:00"),
        (
            P.TIMESTAMPTZ,
            datetime(2024, 2, 29, 12, 0, 0, 5, UTC),
            "2024-02-29T12:00:00.000005+00:00",
        ),
        (P.STRING, "it's", "it's"),
        (P.STRING, "", ""),
        (P.UUID, SOME_UUID.bytes, str(SOME_UUID)),
        (P.BINARY, b"\x00\xff", "00ff"),
        (Fixed(2), b"\x00\xff", "00ff"),
        (Decimal(20, 10), Number("0.0000000001"), "0.0000000001"),
        (Decimal(9, 2), Number("-14.20"), "-14.20"),
    ],
    ids=str,
)
def test_a_value_and_its_default_are_the_same(type_: Type, value: Any, default: Default) -> None:
    target = arrow_type(type_)
    made = default_to_json(pa.scalar(value, target), type_)
    assert made == default
    assert type(made) is type(default)
    assert default_from_json(default, type_, target) == pa.scalar(value, target)


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (P.INT, None),
        (P.DOUBLE, float("nan")),
        (P.FLOAT, float("inf")),
        (list_of(2, P.INT), [1]),
    ],
    ids=str,
)
def test_what_has_no_form_has_no_default(type_: Type, value: Any) -> None:
    assert default_to_json(pa.scalar(value, arrow_type(type_)), type_) is None
