from __future__ import annotations

import pytest

from frazil.errors import UnsupportedSchemaChangeError
from frazil.model.key_index import IndexKey, KeyHash, is_same_key, plan_key_hash
from frazil.model.schema.types import (
    Decimal,
    Field,
    Fixed,
    Primitive,
    Scalar,
    Struct,
    Type,
    list_of,
    map_of,
)

LONGS = [Primitive.INT, Primitive.LONG, Primitive.DATE, Primitive.TIMESTAMP, Primitive.TIMESTAMPTZ]
DIGESTED: list[Scalar] = [
    Primitive.BOOLEAN, Primitive.FLOAT, Primitive.DOUBLE, Primitive.STRING, Primitive.BINARY,
    Decimal(10, 2), Fixed(16),
]  # fmt: skip
REFUSED: list[Type] = [
    Primitive.TIME, Primitive.TIMESTAMP_NS, Primitive.TIMESTAMPTZ_NS,
    Struct((Field(2, "a", Primitive.INT),)), list_of(2, Primitive.INT),
    map_of(2, Primitive.INT, 3, Primitive.INT),
]  # fmt: skip


def key(*types: Scalar, ids: tuple[int, ...] | None = None) -> IndexKey:
    return IndexKey(
        field_ids=ids or tuple(range(1, len(types) + 1)), types=types, hash=plan_key_hash(types)
    )


@pytest.mark.parametrize("type_", LONGS)
def test_a_single_column_of_eight_bytes_is_hashed_one_to_one(type_: Primitive) -> None:
    assert plan_key_hash([type_]) is KeyHash.XXHASH64


def test_a_single_uuid_keeps_its_halves() -> None:
    assert plan_key_hash([Primitive.UUID]) is KeyHash.UUID


@pytest.mark.parametrize("type_", DIGESTED)
def test_a_single_column_of_any_other_type_is_digested(type_: Scalar) -> None:
    assert plan_key_hash([type_]) is KeyHash.SHA256


@pytest.mark.parametrize("type_", [*LONGS, Primitive.UUID, *DIGESTED])
def test_several_columns_are_digested_whatever_their_types(type_: Scalar) -> None:
    assert plan_key_hash([Primitive.LONG, type_]) is KeyHash.SHA256
    assert plan_key_hash([type_, Primitive.UUID]) is KeyHash.SHA256


@pytest.mark.parametrize("type_", REFUSED, ids=str)
def test_a_column_that_cannot_be_a_key_is_refused_by_its_type(type_: Type) -> None:
    for types in ([type_], [Primitive.LONG, type_]):
        with pytest.raises(UnsupportedSchemaChangeError) as refused:
            plan_key_hash(types)
        assert str(type_) in str(refused.value)
        assert "`tables[].key`" in str(refused.value)


def test_a_key_without_columns_is_refused() -> None:
    with pytest.raises(UnsupportedSchemaChangeError, match="at least one column"):
        plan_key_hash([])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (key(Primitive.LONG), key(Primitive.LONG)),
        (key(Primitive.INT), key(Primitive.LONG)),
        (key(Primitive.FLOAT), key(Primitive.DOUBLE)),
        (key(Decimal(10, 2)), key(Decimal(38, 2))),
        (key(Fixed(4), Primitive.INT), key(Fixed(4), Primitive.LONG)),
        (key(Primitive.STRING, Decimal(5, 0)), key(Primitive.STRING, Decimal(6, 0))),
    ],
)
def test_a_key_stays_the_same_when_a_column_takes_more_values(old: IndexKey, new: IndexKey) -> None:
    assert is_same_key(old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (key(Primitive.LONG), key(Primitive.LONG, ids=(2,))),
        (key(Primitive.LONG), key(Primitive.LONG, Primitive.LONG)),
        (key(Primitive.INT, Primitive.STRING), key(Primitive.STRING, Primitive.INT, ids=(2, 1))),
        (key(Primitive.INT), key(Primitive.DATE)),
        (key(Primitive.TIMESTAMP), key(Primitive.TIMESTAMPTZ)),
        (key(Primitive.STRING), key(Primitive.BINARY)),
        (key(Decimal(10, 2)), key(Decimal(10, 3))),
        (key(Fixed(4)), key(Fixed(5))),
        (key(Primitive.INT), key(Decimal(10, 0))),
    ],
)
def test_other_columns_or_types_are_another_key(old: IndexKey, new: IndexKey) -> None:
    assert not is_same_key(old, new)


def test_another_hash_is_another_key() -> None:
    hashed = key(Primitive.LONG)
    digested = IndexKey(field_ids=hashed.field_ids, types=hashed.types, hash=KeyHash.SHA256)
    assert not is_same_key(hashed, digested)
