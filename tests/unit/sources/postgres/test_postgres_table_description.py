"""A table of Postgres as frazil describes it: columns, defaults, key, identity and shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from frazil.codec.pgoutput.messages import Relation, RelationColumn, ReplicaIdentity
from frazil.errors import ConfigError, SourceUnavailableError, UnsupportedSchemaChangeError
from frazil.model.policy import OnUnrepresentable
from frazil.model.postgres.facts import (
    Attribute,
    GeneratedKind,
    IdentityKind,
    PrimaryKey,
    UniqueKey,
)
from frazil.model.postgres.types import Form
from frazil.model.schema.types import Decimal, Primitive, list_of
from frazil.sources.postgres.tables.description import (
    TableOptions,
    describe_relation,
    describe_table,
)
from frazil.sources.postgres.tables.identity import identity_of
from frazil.sources.postgres.tables.mirror_key import NoKeyReason
from frazil.sources.postgres.tables.shape import (
    KnownShape,
    ShapeColumn,
    decode_shape,
    encode_shape,
)
from tests.support.postgres.views import ID, INT, INTS, NUMERIC, TEXT, WORD, attribute, view

if TYPE_CHECKING:
    from frazil.model.schema.types import Default

P = Primitive
OPTIONS = TableOptions()


# Columns.


def test_columns_keep_their_numbers_and_get_types_and_plans() -> None:
    described = describe_table(
        view(ID, WORD, attribute(4, "price", NUMERIC, type_modifier=(9 << 16) + 2 + 4)), OPTIONS
    )
    table = described.table
    assert table.name == "shop.orders"
    assert [(each.number, each.name, each.type) for each in table.columns] == [
        (1, "id", P.INT),
        (3, "word", P.STRING),
        (4, "price", Decimal(9, 2)),
    ]
    assert table.key == (1,)
    assert described.no_key is None
    assert described.plans[4].form is Form.NUMERIC
    assert set(described.plans) == {1, 3, 4}
    assert table.highest_number == 4


def test_only_what_is_published_is_described() -> None:
    listed = describe_table(view(columns=("id",), has_column_list=True), OPTIONS)
    assert [each.name for each in listed.table.columns] == ["id"]
    assert listed.table.highest_number == 3


def test_computed_columns_are_there_only_where_they_are_sent() -> None:
    total = attribute(4, "total", generated=GeneratedKind.STORED, has_default=True)
    names = [each.name for each in describe_table(view(ID, total), OPTIONS).table.columns]
    assert names == ["id"]
    sent = describe_table(view(ID, total, sends_generated=True), OPTIONS).table
    assert sent.column(4).rewrote


def test_options_decide_types() -> None:
    options = TableOptions(
        declared={"id": P.LONG},
        on_unrepresentable=OnUnrepresentable.STRING,
        per_column={"kept": OnUnrepresentable.NULL},
    )
    described = describe_table(
        view(ID, attribute(4, "day", 1082), attribute(5, "kept", 1082)), options
    )
    assert [each.type for each in described.table.columns] == [P.LONG, P.STRING, P.DATE]
    assert described.plans[5].on_unrepresentable is OnUnrepresentable.NULL


def test_a_declared_type_that_cannot_be_is_refused_with_the_table() -> None:
    with pytest.raises(ConfigError) as refused:
        describe_table(view(), TableOptions(declared={"word": P.INT}))
    assert refused.value.table == "shop.orders"


def test_names_that_spark_takes_for_one_are_both_reported() -> None:
    with pytest.raises(UnsupportedSchemaChangeError, match="'Word' and 'word' would be one"):
        describe_table(view(ID, attribute(2, "Word"), WORD), OPTIONS)


def test_facts_of_two_moments_are_loaded_again() -> None:
    with pytest.raises(SourceUnavailableError, match="changed while"):
        describe_table(view(columns=("id", "gone")), OPTIONS)


# What older rows show.


@pytest.mark.parametrize(
    ("type_oid", "text", "default"),
    [
        (16, "t", True),
        (INT, "-7", -7),
        (20, "9007199254740993", 9007199254740993),
        (700, "0.5", 0.5),
        (701, "1e+100", 1e100),
        (TEXT, 'it\'s {"new"}', 'it\'s {"new"}'),
        (1082, "2024-02-29", "2024-02-29"),
        (1082, "0001-01-01", "0001-01-01"),
        (1114, "2024-02-29 12:00:00.5", "2024-02-29T12:00:00.500000"),
        (1184, "2024-02-29 12:00:00+00", "2024-02-29T12:00:00+00:00"),
        (
            2950,
            "f79c3e09-677c-4bbd-a479-3f349cb785e7",
            "f79c3e09-677c-4bbd-a479-3f349cb785e7",
        ),
        (17, "\\x00ff", "00ff"),
    ],
)
def test_a_default_is_in_icebergs_form(type_oid: int, text: str, default: Default) -> None:
    late = attribute(4, "late", type_oid, missing_value=text, has_default=True)
    found = describe_table(view(ID, late), OPTIONS).table.column(4)
    assert (found.default, found.rewrote) == (default, False)
    assert type(found.default) is type(default)


def test_a_decimal_default_has_its_scale_and_no_exponent() -> None:
    late = attribute(
        4, "late", NUMERIC, type_modifier=(20 << 16) + 10 + 4, missing_value="0.0000000001"
    )
    found = describe_table(view(ID, late), OPTIONS).table.column(4)
    assert found.default == "0.0000000001"


@pytest.mark.parametrize(
    ("type_oid", "text"),
    [(701, "NaN"), (700, "-Infinity"), (INTS, "{1,2}"), (1082, "infinity"), (1114, "-infinity")],
)
def test_a_default_without_a_form_is_a_value_that_was_never_sent(type_oid: int, text: str) -> None:
    late = attribute(4, "late", type_oid, missing_value=text, has_default=True)
    found = describe_table(view(ID, late), OPTIONS).table.column(4)
    assert (found.default, found.rewrote) == (None, True)


def test_a_default_that_policy_makes_null_is_none() -> None:
    late = attribute(4, "late", 1082, missing_value="infinity", has_default=True)
    options = TableOptions(on_unrepresentable=OnUnrepresentable.NULL)
    found = describe_table(view(ID, late), options).table.column(4)
    assert (found.default, found.rewrote) == (None, False)


def test_a_default_without_a_missing_value_may_have_rewritten_rows() -> None:
    rolled = attribute(4, "rolled", has_default=True)
    table = describe_table(view(ID, WORD, rolled), OPTIONS).table
    assert table.column(4).rewrote
    assert not table.column(3).rewrote


# The key.


def key(oid: int, *columns: str, made_by: int = 1) -> UniqueKey:
    return UniqueKey(oid=oid, columns=columns, made_by=made_by)


@pytest.mark.parametrize(
    ("changed", "configured", "reason"),
    [
        ({"key": None}, (), NoKeyReason.NONE),
        ({}, ("nothing",), NoKeyReason.UNKNOWN_COLUMNS),
        ({"columns": ("word",), "has_column_list": True}, (), NoKeyReason.NOT_PUBLISHED),
        ({"unique_keys": (key(7, "word"),)}, ("word",), NoKeyReason.NOT_COVERED),
        ({"unique_keys": (key(7, "word", "id"),)}, ("word",), NoKeyReason.NOT_UNIQUE),
        ({"unique_keys": ()}, ("id",), NoKeyReason.NOT_UNIQUE),
        ({"identity_columns": ()}, (), NoKeyReason.NO_IDENTITY),
        ({"key": PrimaryKey(columns=("id",), is_deferrable=True)}, (), NoKeyReason.DEFERRABLE),
        (
            {
                "key": PrimaryKey(columns=("id",), is_deferrable=True),
                "identity_columns": ("id", "word"),
            },
            ("id",),
            NoKeyReason.DEFERRABLE,
        ),
    ],
    ids=[
        "none",
        "unknown",
        "unpublished",
        "uncovered",
        "unique with another",
        "not unique",
        "no identity",
        "deferrable",
        "configured",
    ],
)
def test_a_table_that_cannot_be_mirrored_says_why(
    changed: dict[str, Any], configured: tuple[str, ...], reason: NoKeyReason
) -> None:
    described = describe_table(view(**changed), TableOptions(key=configured))
    assert described.table.key == ()
    assert described.no_key is not None
    assert described.no_key.reason is reason
    assert str(reason) in str(described.no_key)


def test_a_configured_key_needs_an_identity_that_has_it() -> None:
    # What is unique by one column is unique by two.
    full = view(
        identity=IdentityKind.FULL, identity_columns=("id", "word"), unique_keys=(key(7, "id"),)
    )
    assert describe_table(full, TableOptions(key=("word", "id"))).table.key == (3, 1)


def test_lists_are_no_key() -> None:
    listed = view(attribute(1, "id", INTS))
    described = describe_table(listed, OPTIONS)
    assert described.no_key is not None
    assert described.no_key.reason is NoKeyReason.NOT_SINGLE
    assert describe_table(listed, TableOptions(declared={"id": P.STRING})).table.key == (1,)


# Shape.


def test_a_shape_survives_being_read() -> None:
    shape = decode_shape(describe_table(view(), OPTIONS).table.shape, table="t")
    assert shape == KnownShape(
        columns=(ShapeColumn(1, "id", INT, -1), ShapeColumn(3, "word", TEXT, -1)),
        key=(1,),
        highest=3,
    )
    assert decode_shape(encode_shape(shape), table="t") == shape


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"columns":[[1,"a",23]],"hidden":[],"highest":1,"key":[]}',
        '{"columns":[[2,"a",23,-1],[1,"b",23,-1]],"hidden":[],"highest":2,"key":[]}',
        '{"columns":[[2,"a",23,-1]],"hidden":[],"highest":1,"key":[]}',
        '{"columns":[[1,"a",23,-1]],"hidden":[],"highest":1,"key":[2]}',
    ],
)
def test_a_shape_that_cannot_be_read_means_a_resync(text: str) -> None:
    with pytest.raises(UnsupportedSchemaChangeError) as refused:
        decode_shape(text, table="shop.orders")
    assert refused.value.next_step == "frazil resync shop.orders"


# A relation that was recognised, while the catalog may have moved on.

KNOWN = decode_shape(describe_table(view(), OPTIONS).table.shape, table="t")


def relation(
    *columns: tuple[str, int], key: tuple[str, ...] = ("id",), identity: str = "d"
) -> Relation:
    return Relation(
        1,
        "shop",
        "orders",
        ReplicaIdentity(identity),
        tuple(RelationColumn(name, oid, -1, name in key) for name, oid in columns),
    )


def test_a_relation_is_described_by_its_own_names_and_types() -> None:
    moved_on = view(ID, attribute(3, "text", 20), attribute(5, "later", has_default=True))
    described = describe_relation(
        relation(("id", INT), ("label", TEXT)), (1, 3), moved_on, OPTIONS, known=KNOWN
    )
    table = described.table
    assert [(each.number, each.name, each.type) for each in table.columns] == [
        (1, "id", P.INT),
        (3, "label", P.STRING),
    ]
    assert table.key == (1,)
    # Columns that are born later have no say in what was highest then.
    assert table.highest_number == 3
    assert table.identity == identity_of(moved_on)
    assert not any(each.rewrote for each in table.columns)


@pytest.mark.parametrize(
    ("late", "default", "rewrote"),
    [
        (attribute(4, "late", missing_value="5", has_default=True), 5, False),
        (attribute(4, "renamed", missing_value="5"), 5, False),
        (attribute(4, "late", has_default=True), None, True),
        (attribute(4, "late"), None, False),
        (attribute(4, "late", TEXT, missing_value="5"), None, True),
        (attribute(5, "other"), None, True),
    ],
    ids=["a default", "renamed since", "rewritten", "plain", "retyped since", "gone since"],
)
def test_the_catalog_shows_what_older_rows_have_if_it_still_can(
    late: Attribute, default: Default | None, *, rewrote: bool
) -> None:
    described = describe_relation(
        relation(("id", INT), ("word", TEXT), ("late", INT)),
        (1, 3, 4),
        view(ID, WORD, late),
        OPTIONS,
        known=KNOWN,
    )
    found = described.table.column(4)
    assert (found.default, found.rewrote) == (default, rewrote)
    assert described.table.highest_number == 4


@pytest.mark.parametrize(
    ("message", "changed", "key"),
    [
        (relation(("id", INT), ("word", TEXT)), {}, (1,)),
        (relation(("id", INT), ("word", TEXT), key=("id", "word")), {}, ()),
        (relation(("id", INT), ("word", TEXT), key=("word",)), {}, ()),
        (relation(("id", INT), ("word", TEXT), key=("id", "word"), identity="f"), {}, (1,)),
        (relation(("id", INT), ("word", TEXT)), {"key": None}, ()),
    ],
    ids=["the same", "a longer one then", "another one then", "full rows", "none now"],
)
def test_a_key_counts_only_where_message_and_catalog_agree(
    message: Relation, changed: dict[str, Any], key: tuple[int, ...]
) -> None:
    described = describe_relation(message, (1, 3), view(**changed), OPTIONS, known=KNOWN)
    assert described.table.key == key
    assert (described.no_key is None) == bool(key)


def test_lists_stay_lists() -> None:
    described = describe_table(view(ID, attribute(4, "many", INTS)), OPTIONS)
    assert described.table.column(4).type == list_of(0, P.INT)
