"""Which columns may identify a row, and when two keys are hashed alike: pure questions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.errors import UnsupportedSchemaChangeError
from frazil.model.key_index import KeyHash
from frazil.model.schema.types import WIDEST_DECIMAL, Decimal, Nested, Primitive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frazil.model.key_index import IndexKey
    from frazil.model.schema.types import Scalar, Type

# Eight bytes with an order of their own: one such column needs no digest.
_LONGS = frozenset(
    {Primitive.INT, Primitive.LONG, Primitive.DATE, Primitive.TIMESTAMP, Primitive.TIMESTAMPTZ}
)
# Spark cannot read them from an Iceberg table, so nothing could be hashed.
_UNREADABLE = frozenset({Primitive.TIME, Primitive.TIMESTAMP_NS, Primitive.TIMESTAMPTZ_NS})
_WIDER = {Primitive.INT: Primitive.LONG, Primitive.FLOAT: Primitive.DOUBLE}


def plan_key_hash(types: Sequence[Type]) -> KeyHash:
    """How a key of these columns is hashed; UnsupportedSchemaChangeError if it cannot be a key."""
    if not types:
        raise _unsupported("a key has at least one column")
    for each in types:
        if isinstance(each, Nested) or each in _UNREADABLE:
            message = f"a column of type {each} cannot be part of a key"
            raise _unsupported(message)
    if len(types) == 1 and types[0] in _LONGS:
        return KeyHash.XXHASH64
    if len(types) == 1 and types[0] is Primitive.UUID:
        return KeyHash.UUID
    return KeyHash.SHA256


def is_same_key(old: IndexKey, new: IndexKey) -> bool:
    """Whether what was hashed under the old key is found under the new one.

    Types may differ by what hashes do not see: int and long, float and double, and the precision
    of a decimal.
    """
    return (
        old.field_ids == new.field_ids
        and old.hash is new.hash
        and [_widest(each) for each in old.types] == [_widest(each) for each in new.types]
    )


def _widest(type_: Scalar) -> Scalar:
    if isinstance(type_, Decimal):
        return Decimal(WIDEST_DECIMAL, type_.scale)
    if isinstance(type_, Primitive):
        return _WIDER.get(type_, type_)
    return type_


def _unsupported(message: str) -> UnsupportedSchemaChangeError:
    return UnsupportedSchemaChangeError(
        message, next_step="Choose other columns in `tables[].key`."
    )
