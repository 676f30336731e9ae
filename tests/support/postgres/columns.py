"""Plans of columns, written as the tests think of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from frazil.codec.pgtext.convert import Converted, convert
from frazil.model.policy import OnUnrepresentable
from frazil.model.postgres.types import ColumnPlan, PostgresType, TypeKind, plan_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frazil.model.schema.types import Type

OIDS = {
    "bool": 16, "bytea": 17, "char": 18, "int8": 20, "int2": 21, "int4": 23, "text": 25, "oid": 26,
    "json": 114, "box": 603, "float4": 700, "float8": 701, "bpchar": 1042, "varchar": 1043,
    "date": 1082, "time": 1083, "timestamp": 1114, "timestamptz": 1184, "numeric": 1700,
    "uuid": 2950, "jsonb": 3802,
}  # fmt: skip


def numeric_modifier(precision: int, scale: int) -> int:
    """As Postgres packs them."""
    return (precision << 16 | scale & 0x7FF) + 4


def pg(name: str, modifier: int = -1) -> PostgresType:
    """A built-in type; a name that ends in ``[]`` is an array of it."""
    if not name.endswith("[]"):
        delimiter = ";" if name == "box" else ","
        return PostgresType(OIDS[name], name, modifier=modifier, delimiter=delimiter)
    return PostgresType(1, name, TypeKind.ARRAY, modifier, pg(name.removesuffix("[]"), modifier))


def numeric(precision: int, scale: int) -> PostgresType:
    return pg("numeric", numeric_modifier(precision, scale))


def column(
    type_: str | PostgresType,
    *,
    declared: Type | None = None,
    policy: OnUnrepresentable = OnUnrepresentable.FAIL,
) -> ColumnPlan:
    """The plan of a column ``seen``."""
    known = pg(type_) if isinstance(type_, str) else type_
    return plan_column("seen", known, declared=declared, on_unrepresentable=policy)


def converted(
    text: Sequence[str | None],
    type_: str | PostgresType,
    *,
    declared: Type | None = None,
    policy: OnUnrepresentable = OnUnrepresentable.FAIL,
) -> Converted:
    """What a column of this type becomes.

    The text lies in the middle of a longer array, as a slice of a batch does, and where it is null
    the bytes beneath are not empty.
    """
    padded = pa.array(["?", *("?" if each is None else each for each in text), "?"], pa.string())
    known = [True, *(each is not None for each in text), True]
    bitmap = pa.array(known).buffers()[1]
    data = pa.Array.from_buffers(pa.string(), len(padded), [bitmap, *padded.buffers()[1:]])
    return convert(data[1:-1], column(type_, declared=declared, policy=policy))
