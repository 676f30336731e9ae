"""A table of Postgres in the house's terms: columns, defaults, key, identity and shape."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from frazil.codec.pgoutput_messages import Relation, RelationColumn, ReplicaIdentity
from frazil.errors import ConfigError, SourceUnavailableError, UnsupportedSchemaChangeError
from frazil.model.policy import OnUnrepresentable
from frazil.model.postgres_facts import (
    Attribute,
    GeneratedKind,
    IdentityKind,
    PrimaryKey,
    UniqueKey,
)
from frazil.model.postgres_type import Form
from frazil.model.schema import Decimal, Primitive, list_of
from frazil.sources.postgres.mirror_key import NoKeyReason
from frazil.sources.postgres.table_description import (
    TableWishes,
    describe_relation,
    describe_table,
)
from frazil.sources.postgres.table_identity import identity_differences, identity_of
from frazil.sources.postgres.table_shape import (
    KnownShape,
    ShapeColumn,
    decode_shape,
    encode_shape,
)
from tests.support.postgres_views import ID, INT, INTS, NUMERIC, TEXT, WORD, attribute, view

if TYPE_CHECKING:
    from frazil.model.schema import Default

P = Primitive
WISHES = TableWishes()
BIGINT = 20


# Columns.


def test_columns_keep_their_numbers_and_get_types_and_plans() -> None:
    described = describe_table(
        view(ID, WORD, attribute(4, "price", NUMERIC, type_modifier=(9 << 16) + 2 + 4)), WISHES
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
    listed = describe_table(view(columns=("id",), has_column_list=True), WISHES)
    assert [each.name for each in listed.table.columns] == ["id"]
    assert listed.table.highest_number == 3


def test_computed_columns_are_there_only_where_they_are_sent() -> None:
    total = attribute(4, "total", generated=GeneratedKind.STORED, has_default=True)
    names = [each.name for each in describe_table(view(ID, total), WISHES).table.columns]
    assert names == ["id"]
    sent = describe_table(view(ID, total, sends_generated=True), WISHES).table
    assert sent.column(4).rewrote


def test_wishes_decide_types() -> None:
    wishes = TableWishes(
        declared={"id": P.LONG},
        on_unrepresentable=OnUnrepresentable.STRING,
        per_column={"kept": OnUnrepresentable.NULL},
    )
    described = describe_table(
        view(ID, attribute(4, "day", 1082), attribute(5, "kept", 1082)), wishes
    )
    assert [each.type for each in described.table.columns] == [P.LONG, P.STRING, P.DATE]
    assert described.plans[5].on_unrepresentable is OnUnrepresentable.NULL


def test_a_declared_type_that_cannot_be_is_refused_with_the_table() -> None:
    with pytest.raises(ConfigError) as refused:
        describe_table(view(), TableWishes(declared={"word": P.INT}))
    assert refused.value.table == "shop.orders"


def test_names_that_spark_takes_for_one_are_both_told() -> None:
    with pytest.raises(UnsupportedSchemaChangeError, match="'Word' and 'word' would be one"):
        describe_table(view(ID, attribute(2, "Word"), WORD), WISHES)


def test_facts_of_two_moments_are_asked_for_again() -> None:
    with pytest.raises(SourceUnavailableError, match="changed while"):
        describe_table(view(columns=("id", "gone")), WISHES)


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
    found = describe_table(view(ID, late), WISHES).table.column(4)
    assert (found.default, found.rewrote) == (default, False)
    assert type(found.default) is type(default)


def test_a_decimal_default_has_its_scale_and_no_exponent() -> None:
    late = attribute(
        4, "late", NUMERIC, type_modifier=(20 << 16) + 10 + 4, missing_value="0.0000000001"
    )
    found = describe_table(view(ID, late), WISHES).table.column(4)
    assert found.default == "0.0000000001"


@pytest.mark.parametrize(
    ("type_oid", "text"),
    [(701, "NaN"), (700, "-Infinity"), (INTS, "{1,2}"), (1082, "infinity"), (1114, "-infinity")],
)
def test_a_default_without_a_form_is_a_value_that_was_never_sent(type_oid: int, text: str) -> None:
    late = attribute(4, "late", type_oid, missing_value=text, has_default=True)
    found = describe_table(view(ID, late), WISHES).table.column(4)
    assert (found.default, found.rewrote) == (None, True)


def test_a_default_that_policy_makes_null_is_none() -> None:
    late = attribute(4, "late", 1082, missing_value="infinity", has_default=True)
    wishes = TableWishes(on_unrepresentable=OnUnrepresentable.NULL)
    found = describe_table(view(ID, late), wishes).table.column(4)
    assert (found.default, found.rewrote) == (None, False)


def test_a_default_without_a_missing_value_may_have_rewritten_rows() -> None:
    rolled = attribute(4, "rolled", has_default=True)
    table = describe_table(view(ID, WORD, rolled), WISHES).table
    assert table.column(4).rewrote
    assert not table.column(3).rewrote


# The key.


def key(oid: int, *columns: str, made_by: int = 1) -> UniqueKey:
    return UniqueKey(oid=oid, columns=columns, made_by=made_by)


@pytest.mark.parametrize(
    ("changed", "wished", "reason"),
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
        "wished",
    ],
)
def test_a_table_that_cannot_be_mirrored_says_why(
    changed: dict[str, Any], wished: tuple[str, ...], reason: NoKeyReason
) -> None:
    described = describe_table(view(**changed), TableWishes(key=wished))
    assert described.table.key == ()
    assert described.no_key is not None
    assert described.no_key.reason is reason
    assert str(reason) in str(described.no_key)


def test_a_wished_key_needs_an_identity_that_has_it() -> None:
    # What is unique by one column is unique by two.
    full = view(
        identity=IdentityKind.FULL, identity_columns=("id", "word"), unique_keys=(key(7, "id"),)
    )
    assert describe_table(full, TableWishes(key=("word", "id"))).table.key == (3, 1)


def test_lists_are_no_key() -> None:
    listed = view(attribute(1, "id", INTS))
    described = describe_table(listed, WISHES)
    assert described.no_key is not None
    assert described.no_key.reason is NoKeyReason.NOT_SINGLE
    assert describe_table(listed, TableWishes(declared={"id": P.STRING})).table.key == (1,)


# Identity.


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"system_identifier": "7001", "oid": 2}, "it is on another server"),
        ({"database": "other"}, "it is in another database"),
        ({"oid": 2, "membership_oid": 100}, "it was dropped and created again"),
        ({"membership_oid": 100}, "it left the publication and entered it again"),
        ({"row_filter": "(id > 1)"}, "its row filter changed"),
        ({"has_column_list": True}, "its column list changed"),
        ({"sends_truncates": False}, "the kinds of changes that are published changed"),
        ({"via_root": False}, "the publication sends partitions otherwise"),
        ({"sends_generated": True}, "the publication sends generated columns otherwise"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_nobody_announces_is_told_in_words(changed: dict[str, Any], words: str) -> None:
    before, now = identity_of(view()), identity_of(view(**changed))
    (found,) = identity_differences(before, now)
    assert found.startswith(words)


def test_several_differences_are_all_told() -> None:
    now = identity_of(view(row_filter="(id > 1)", sends_truncates=False))
    assert len(identity_differences(identity_of(view()), now)) == 2


def test_columns_that_come_and_go_and_timelines_are_no_part_of_the_identity() -> None:
    grown = view(ID, WORD, attribute(4, "late"), timeline=2, identity=IdentityKind.FULL)
    assert identity_of(grown) == identity_of(view())
    assert identity_differences(identity_of(view()), identity_of(grown)) == ()


def test_a_renamed_column_stays_in_its_list() -> None:
    listed = view(has_column_list=True)
    renamed = view(ID, replace(WORD, name="text"), has_column_list=True)
    assert identity_of(listed) == identity_of(renamed)


@pytest.mark.parametrize("text", ["", "[]", "{}", "{"])
def test_an_identity_that_cannot_be_read_is_another_one(text: str) -> None:
    assert identity_differences(text, identity_of(view()))


def test_facts_that_an_older_version_did_not_record_are_no_differences() -> None:
    now = json.loads(identity_of(view(is_implicit=True, unique_keys=(key(7, "id"),))))
    before = {name: now[name] for name in now if name in FIRST_RECORDED}
    assert len(before) == len(FIRST_RECORDED)
    assert identity_differences(json.dumps(before), json.dumps(now)) == ()


FIRST_RECORDED = (
    "system",
    "database",
    "relation",
    "publication",
    "membership",
    "filter",
    "columns",
    "publish",
    "via_root",
    "generated",
)


@pytest.mark.fault("N36")
def test_options_that_are_what_they_were_again_were_changed() -> None:
    (found,) = identity_differences(identity_of(view()), identity_of(view(options_changed_by=9)))
    assert found.startswith("the options of its publication were changed")


@pytest.mark.fault("N35")
def test_a_table_that_nobody_named_missed_what_happened_while_it_was_gone() -> None:
    named, implicit = identity_of(view()), identity_of(view(is_implicit=True))
    assert identity_differences(named, named, was_gone=True) == ()
    assert identity_differences(implicit, implicit) == ()
    (found,) = identity_differences(implicit, implicit, was_gone=True)
    assert found.startswith("it was gone, and nothing kept")


@pytest.mark.fault("N35")
def test_a_table_moved_away_and_back_missed_what_happened_meanwhile() -> None:
    def moved(by: int, **facts: object) -> str:
        return identity_of(view(moved_by=by, **facts))

    assert identity_differences(moved(1), moved(2)) == ()
    everything = {"is_implicit": True, "membership_oid": None}
    assert identity_differences(moved(1, **everything), moved(2, **everything)) == ()
    (found,) = identity_differences(moved(1, is_implicit=True), moved(2, is_implicit=True))
    assert found.startswith("it was moved to another schema and back")


@pytest.mark.fault("N35")
def test_a_table_that_was_unlogged_for_a_while_was_written_again_with_the_same_columns() -> None:
    def rewritten(toast: int, *changed_by: tuple[int, int], is_implicit: bool = True) -> str:
        facts = view(toast_oid=toast, changed_by=changed_by, is_implicit=is_implicit)
        return identity_of(facts)

    before = rewritten(1, (1, 700))
    assert identity_differences(before, rewritten(2, (1, 701))) == ()
    assert identity_differences(before, rewritten(1, (1, 701))) == ()
    # A column of text came, and with it a place for large values.
    assert identity_differences(rewritten(0, (1, 700)), before) == ()
    (found,) = identity_differences(before, rewritten(2, (1, 700)))
    assert found.startswith("it was unlogged for a while")
    # A table that is named cannot become unlogged.
    named = rewritten(1, (1, 700), is_implicit=False)
    assert identity_differences(named, rewritten(2, (1, 700), is_implicit=False)) == ()


@pytest.mark.fault("N37")
def test_a_key_that_was_dropped_and_added_again_kept_nothing_apart_meanwhile() -> None:
    def keyed(*keys: UniqueKey, wished: tuple[str, ...] = (), **facts: object) -> str:
        return identity_of(view(unique_keys=keys, **facts), wished)

    before = keyed(key(7, "id"))
    assert identity_differences(before, keyed(key(7, "id", made_by=2))) == ()
    for now in (keyed(key(8, "id")), keyed(), keyed(key(7, "word"))):
        (found,) = identity_differences(before, now)
        assert found.startswith("its key was dropped")
    # One of two is enough, and a table that had none has none to lose.
    both = keyed(key(7, "id"), key(8, "id"))
    assert identity_differences(both, keyed(key(8, "id"), key(9, "id"))) == ()
    assert identity_differences(keyed(), keyed(key(7, "id"))) == ()
    assert identity_differences(
        keyed(key(7, "word"), wished=("word",)), keyed(key(8, "word"), wished=("word",))
    )


@pytest.mark.fault("N37")
def test_a_key_made_again_with_the_type_of_its_column_was_there_all_the_time() -> None:
    def keyed(oid: int, type_: int, *, written_by: int) -> str:
        wider = view(
            replace(ID, type_oid=type_),
            WORD,
            unique_keys=(key(oid, "id", made_by=5),),
            changed_by=((1, written_by), (3, 1)),
        )
        return identity_of(wider)

    before = keyed(7, INT, written_by=1)
    assert identity_differences(before, keyed(8, BIGINT, written_by=5)) == ()
    assert identity_differences(before, keyed(8, BIGINT, written_by=4))
    assert identity_differences(before, keyed(8, INT, written_by=5))


def test_an_identity_is_sorted_json() -> None:
    document = json.loads(identity_of(view()))
    assert list(document) == sorted(document)
    assert document["columns"] is None


# Shape.


def test_a_shape_survives_being_read() -> None:
    shape = decode_shape(describe_table(view(), WISHES).table.shape, table="t")
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

KNOWN = decode_shape(describe_table(view(), WISHES).table.shape, table="t")


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
        relation(("id", INT), ("words", TEXT)), (1, 3), moved_on, WISHES, known=KNOWN
    )
    table = described.table
    assert [(each.number, each.name, each.type) for each in table.columns] == [
        (1, "id", P.INT),
        (3, "words", P.STRING),
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
def test_the_catalog_tells_what_older_rows_show_if_it_still_can(
    late: Attribute, default: Default | None, *, rewrote: bool
) -> None:
    described = describe_relation(
        relation(("id", INT), ("word", TEXT), ("late", INT)),
        (1, 3, 4),
        view(ID, WORD, late),
        WISHES,
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
    ids=["the same", "a longer one then", "another one then", "whole rows", "none now"],
)
def test_a_key_counts_only_where_message_and_catalog_agree(
    message: Relation, changed: dict[str, Any], key: tuple[int, ...]
) -> None:
    described = describe_relation(message, (1, 3), view(**changed), WISHES, known=KNOWN)
    assert described.table.key == key
    assert (described.no_key is None) == bool(key)


def test_lists_stay_lists() -> None:
    described = describe_table(view(ID, attribute(4, "many", INTS)), WISHES)
    assert described.table.column(4).type == list_of(0, P.INT)
