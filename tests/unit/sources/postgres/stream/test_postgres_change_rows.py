"""What each change of a stream becomes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from frazil.codec.pgoutput.messages import (
    Commit,
    Delete,
    ImageKind,
    Insert,
    Message,
    OldImage,
    Truncate,
    TruncateOption,
    Update,
    Value,
)
from frazil.errors import MissingImageError, UnsupportedSchemaChangeError
from frazil.model.postgres.lsn import format_lsn
from frazil.sources.postgres.stream.segment import OpenTransaction
from tests.support.pgoutput.frames import NULL, UNCHANGED, text
from tests.support.postgres.changes.change_histories import (
    FOREIGN,
    LOG,
    NUMERIC,
    TEXT,
    ShapedColumn,
    reading,
    shape,
)
from tests.support.postgres.stream import (
    BODY,
    COMMITTED,
    DEFAULT,
    FULL,
    ID,
    ITEM,
    LSN,
    OID,
    TIME,
    N,
    Read,
    failure,
    new,
    old_key,
    old_key_of,
    old_row,
    read,
    transaction,
)

if TYPE_CHECKING:
    from frazil.sources.postgres.stream.segment import ShapeReading


def items(*messages: Message, as_shape: ShapeReading = DEFAULT) -> list[dict[str, object]]:
    """The rows of the item table after one transaction, without the columns of the transaction."""
    found = read(as_shape.relation, *transaction(*messages))
    assert not found.failures
    of_transaction = ("position", "committed_at", "origin")
    return [
        {name: value for name, value in row.items() if name not in of_transaction}
        for row in found.rows.get("public.item", [])
    ]


def row(
    operation: str,
    values: tuple[object, object, object],
    ordinal: int = 0,
    *,
    unchanged: list[int] | None = None,
    previous: int | None = None,
) -> dict[str, object]:
    return {
        **{str(number): value for number, value in enumerate(values, start=1)},
        "operation": operation,
        "ordinal": ordinal,
        "unchanged": unchanged,
        "previous_key": None if previous is None else {"1": previous},
    }


# --- one change, one row ---


def test_insert_update_and_delete_are_one_row_each() -> None:
    assert items(
        Insert(OID, new("1", "a", "10")),
        Update(OID, None, new("1", "b", NULL)),
        Delete(OID, old_key("1")),
    ) == [
        row("INSERT", (1, "a", 10), 0),
        row("UPDATE", (1, "b", None), 1),
        row("DELETE", (1, None, None), 2),
    ]


def test_a_row_has_the_position_time_and_origin_of_its_transaction() -> None:
    found = read(
        DEFAULT.relation,
        *transaction(Insert(OID, new("1", "a", "1"))),
        *transaction(Insert(OID, new("2", "a", "1")), lsn=LSN + 1),
    ).rows["public.item"]
    assert [each["position"] for each in found] == [LSN, LSN + 1]
    assert [each["origin"] for each in found] == ["16/B374D848", "16/B374D849"]
    assert {each["committed_at"] for each in found} == {TIME}
    assert [each["ordinal"] for each in found] == [0, 0]


@pytest.mark.parametrize("lsn", [1, 0xF, 0x10, 2**32 - 1, 2**32, 0x1_0000_000A, 2**64 - 50])
def test_the_origin_is_printed_as_postgres_prints_positions(lsn: int) -> None:
    found = read(DEFAULT.relation, *transaction(Insert(OID, new("1", "a", "1")), lsn=lsn))
    assert [each["origin"] for each in found.rows["public.item"]] == [format_lsn(lsn)]


def test_a_delete_with_a_complete_old_row_has_all_of_it() -> None:
    deleted = Delete(OID, old_row("1", "a", NULL))
    assert items(deleted, as_shape=FULL) == [row("DELETE", (1, "a", None))]


def test_what_a_key_image_says_outside_the_identity_is_no_value() -> None:
    deleted = Delete(OID, OldImage(ImageKind.OLD_KEY, new("1", "a", "2")))
    assert items(deleted) == [row("DELETE", (1, None, None))]


# --- what was not sent ---


def test_columns_that_were_not_sent_are_named_by_number_and_null() -> None:
    assert items(
        Update(OID, None, new("1", UNCHANGED, "5")),
        Update(OID, None, new("1", UNCHANGED, UNCHANGED)),
        Update(OID, None, new("1", "b", NULL)),
    ) == [
        row("UPDATE", (1, None, 5), 0, unchanged=[2]),
        row("UPDATE", (1, None, None), 1, unchanged=[2, 3]),
        row("UPDATE", (1, "b", None), 2),
    ]


def test_a_complete_old_row_fills_what_was_not_sent() -> None:
    assert items(
        Update(OID, old_row("1", "long", NULL), new("1", UNCHANGED, UNCHANGED)), as_shape=FULL
    ) == [row("UPDATE", (1, "long", None))]


def test_a_key_image_fills_columns_of_the_identity_and_no_others() -> None:
    assert items(Update(OID, old_key("1"), new(UNCHANGED, UNCHANGED, "5"))) == [
        row("UPDATE", (1, None, 5), unchanged=[2])
    ]


# --- changes of the key ---


def test_an_old_key_that_is_the_new_one_is_a_plain_update() -> None:
    assert items(Update(OID, old_key("1"), new("1", "b", "5"))) == [row("UPDATE", (1, "b", 5))]


def test_a_key_change_deletes_the_old_key_and_then_inserts_the_new_row() -> None:
    assert items(Update(OID, old_key("1"), new("2", UNCHANGED, "5"))) == [
        row("DELETE", (1, None, None), 0),
        row("INSERT", (2, None, 5), 1, unchanged=[2], previous=1),
    ]


def test_with_a_complete_old_row_a_key_change_lacks_nothing() -> None:
    changed = Update(OID, old_row("1", "long", "4"), new("2", UNCHANGED, "5"))
    assert items(changed, as_shape=FULL) == [
        row("DELETE", (1, "long", 4), 0),
        row("INSERT", (2, "long", 5), 1, previous=1),
    ]


def test_keys_swapped_through_a_third_value_are_six_rows_in_order() -> None:
    assert [
        (each["operation"], each["1"], each["previous_key"])
        for each in items(
            Update(OID, old_key("1"), new("3", "a", "1")),
            Update(OID, old_key("2"), new("1", "b", "1")),
            Update(OID, old_key("3"), new("2", "a", "1")),
        )
    ] == [
        ("DELETE", 1, None),
        ("INSERT", 3, {"1": 1}),
        ("DELETE", 2, None),
        ("INSERT", 1, {"1": 2}),
        ("DELETE", 3, None),
        ("INSERT", 2, {"1": 3}),
    ]


def test_a_key_that_changes_and_comes_back_keeps_every_step() -> None:
    found = items(
        Update(OID, old_key("2"), new("3", UNCHANGED, "1")),
        Update(OID, old_key("3"), new("2", UNCHANGED, "1")),
    )
    assert found == [
        row("DELETE", (2, None, None), 0),
        row("INSERT", (3, None, 1), 1, unchanged=[2], previous=2),
        row("DELETE", (3, None, None), 2),
        row("INSERT", (2, None, 1), 3, unchanged=[2], previous=3),
    ]


def test_keys_are_compared_as_they_are_printed() -> None:
    codes = reading(
        "public.code", shape(OID, ShapedColumn(1, "w", TEXT, is_key=True), BODY), key=(1,)
    )
    found = read(
        codes.shapes[0].relation,
        *transaction(
            Update(OID, OldImage(ImageKind.OLD_KEY, (text("é"), NULL)), (text("e\u0301"), NULL))
        ),
        tables=(codes,),
    )
    assert [each["operation"] for each in found.rows["public.code"]] == ["DELETE", "INSERT"]


def test_half_a_key_may_be_out_of_line_while_the_other_half_changes() -> None:
    pair = reading(
        "public.pair",
        shape(OID, ID, ShapedColumn(2, "long", TEXT, is_key=True), N),
        key=(1, 2),
    )
    found = read(
        pair.shapes[0].relation,
        *transaction(
            Update(
                OID,
                OldImage(ImageKind.OLD_KEY, new("1", "toast", NULL)),
                new("2", UNCHANGED, "3"),
            )
        ),
        tables=(pair,),
    ).rows["public.pair"]
    assert [(each["operation"], each["1"], each["2"], each["3"]) for each in found] == [
        ("DELETE", 1, "toast", None),
        ("INSERT", 2, "toast", 3),
    ]
    assert found[1]["previous_key"] == {"1": 1, "2": "toast"}
    assert found[1]["unchanged"] is None


def test_a_key_that_was_or_becomes_null_has_changed_and_null_is_the_same_as_null() -> None:
    def update(before: Value | str, now: Value | str) -> Update:
        return Update(OID, old_row(before, "a", "1"), new(now, "a", "1"))

    found = items(update(NULL, "1"), update("1", NULL), update(NULL, NULL), as_shape=FULL)
    assert [(each["operation"], each["1"], each["previous_key"]) for each in found] == [
        ("DELETE", None, None),
        ("INSERT", 1, {"1": None}),
        ("DELETE", 1, None),
        ("INSERT", None, {"1": 1}),
        ("UPDATE", None, None),
    ]


def test_a_table_without_a_key_has_one_row_for_every_update_and_no_previous_key() -> None:
    table = replace(ITEM, key=())
    found = read(
        FULL.relation,
        *transaction(Update(OID, old_row("1", "a", "1"), new("2", UNCHANGED, "1"))),
        tables=(table,),
    ).rows["public.item"]
    assert [(each["operation"], each["1"], each["2"]) for each in found] == [("UPDATE", 2, "a")]
    assert "previous_key" not in found[0]


# --- keys that are not known ---


def test_an_update_whose_key_was_not_sent_at_all_is_a_missing_image() -> None:
    error = failure(
        DEFAULT.relation,
        *transaction(Update(OID, None, new("1", "a", "1"))),
        *transaction(Update(OID, None, new(UNCHANGED, "a", "1")), lsn=LSN + 2),
    )
    assert isinstance(error, MissingImageError)
    assert (error.table, error.position) == ("public.item", format_lsn(LSN + 2))


def test_an_old_image_without_its_key_is_a_missing_image() -> None:
    keyless = OldImage(ImageKind.OLD_ROW, new(UNCHANGED, "a", "1"))
    for change in (Delete(OID, keyless), Update(OID, keyless, new("1", "a", "1"))):
        assert isinstance(failure(FULL.relation, *transaction(change)), MissingImageError)


def test_an_identity_without_the_key_may_only_insert() -> None:
    apart = shape(OID, replace(ID, is_key=False), BODY, replace(N, is_key=True))
    table = reading("public.item", apart, key=(1,))
    inserted = Insert(OID, new("1", "a", "1"))
    found = read(apart.relation, *transaction(inserted), tables=(table,))
    assert len(found.rows["public.item"]) == 1
    for change in (
        Update(OID, None, new("1", "a", "1")),
        Delete(OID, OldImage(ImageKind.OLD_KEY, new(NULL, NULL, "1"))),
    ):
        error = failure(apart.relation, *transaction(inserted, change), tables=(table,))
        assert isinstance(error, UnsupportedSchemaChangeError)


def test_a_shape_without_the_key_is_refused() -> None:
    keyless = shape(OID, BODY, N)
    table = replace(ITEM, shapes=(*ITEM.shapes, keyless))
    inserted = transaction(Insert(OID, (text("a"), text("1"))))
    error = failure(keyless.relation, *inserted, tables=(table,))
    assert isinstance(error, UnsupportedSchemaChangeError)


# --- truncations, ordinals and shapes ---


def test_a_truncation_is_one_row_for_each_captured_table_in_order() -> None:
    found = read(
        DEFAULT.relation,
        FOREIGN.relation,
        *transaction(
            Insert(OID, new("1", "a", "1")),
            Truncate((10, OID, 9), TruncateOption.CASCADE),
            Insert(OID, new("2", "a", "1")),
        ),
        tables=(ITEM, LOG),
    )
    assert [
        (each["operation"], each["ordinal"], each["1"], each["2"])
        for each in found.rows["public.item"]
    ] == [("INSERT", 0, 1, "a"), ("TRUNCATE", 1, None, None), ("INSERT", 2, 2, "a")]
    assert [
        (each["operation"], each["ordinal"], each["position"]) for each in found.rows["public.log"]
    ] == [("TRUNCATE", 0, LSN)]
    assert found.rows.keys() == {"public.item", "public.log"}


def test_rows_of_several_shapes_have_the_same_columns_and_stay_in_order() -> None:
    grown = shape(OID, N, replace(ID, name="key"), ShapedColumn(4, "price", NUMERIC))
    table = reading("public.item", DEFAULT, grown, key=(1,))
    found = read(
        DEFAULT.relation,
        *transaction(
            Insert(OID, new("1", UNCHANGED, "1")),
            grown.relation,
            Update(OID, old_key_of(grown, "1"), (text("7"), text("2"), text("1.50"))),
            DEFAULT.relation,
            Delete(OID, old_key("2")),
        ),
        tables=(table,),
    ).rows["public.item"]
    assert [
        (each["operation"], each["ordinal"], each["1"], each["3"], str(each["4"])) for each in found
    ] == [
        ("INSERT", 0, 1, 1, "None"),
        ("DELETE", 1, 1, None, "None"),
        ("INSERT", 2, 2, 7, "1.50"),
        ("DELETE", 3, 2, None, "None"),
    ]
    assert [each["unchanged"] for each in found] == [[2], None, None, None]
    assert [each["previous_key"] for each in found] == [None, None, {"1": 1}, None]


def test_a_shape_that_was_not_planned_stops_its_table_and_no_other() -> None:
    other = reading("public.other", FOREIGN, key=(1,))
    found = read(
        shape(OID, ID).relation,
        FOREIGN.relation,
        *transaction(Insert(10, (text("1"), NULL)), Insert(OID, (text("1"),))),
        tables=(ITEM, other),
    )
    assert isinstance(found.failures["public.item"], UnsupportedSchemaChangeError)
    assert found.failures["public.item"].position == format_lsn(LSN)
    assert len(found.rows["public.other"]) == 1


def test_ordinals_go_on_in_a_segment_that_begins_inside_a_transaction() -> None:
    found = read(
        DEFAULT.relation,
        Insert(OID, new("1", "a", "1")),
        Insert(OID, new("2", "a", "1")),
        Commit(LSN, LSN + 48, COMMITTED),
        *transaction(Insert(OID, new("3", "a", "1")), lsn=LSN + 99),
        opens=OpenTransaction(LSN, COMMITTED),
        begins_ordinals={OID: 70},
    ).rows["public.item"]
    assert [(each["position"], each["ordinal"]) for each in found] == [
        (LSN, 70),
        (LSN, 71),
        (LSN + 99, 0),
    ]
    assert found[0]["committed_at"] == TIME


def test_transactions_before_the_tables_position_are_skipped() -> None:
    messages = [
        DEFAULT.relation,
        *transaction(Insert(OID, new("1", "a", "not a number"))),
        shape(OID, ID).relation,
        *transaction(Insert(OID, (text("1"),)), lsn=LSN + 1),
        DEFAULT.relation,
        *transaction(Truncate((OID,), TruncateOption(0)), lsn=LSN + 1),
        *transaction(Insert(OID, new("2", "a", "1")), lsn=LSN + 2),
    ]
    found = read(*messages, tables=(replace(ITEM, after=LSN + 2),))
    assert [(each["1"], each["position"]) for each in found.rows["public.item"]] == [(2, LSN + 2)]
    assert read(*messages, tables=(replace(ITEM, after=LSN + 3),)) == Read()
