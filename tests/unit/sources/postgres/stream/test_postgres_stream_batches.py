"""From the messages of a server to the rows of batches: none is lost, doubled or misread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from frazil.codec.pgoutput.messages import (
    ReplicaIdentity,
    Truncate,
    TruncateOption,
)
from frazil.errors import DefectError, UnsupportedSchemaChangeError
from frazil.model.postgres.facts import PrimaryKey
from frazil.model.schema.types import Primitive
from frazil.sources.postgres.stream.spool import Taken
from frazil.sources.postgres.tables.description import TableOptions, describe_table
from tests.support.postgres.views import ID, INT, TEXT, WORD, attribute, view

if TYPE_CHECKING:
    from pathlib import Path

    from frazil.codec.pgoutput.messages import Message
    from frazil.sources.postgres.tables.catalog_view import CatalogView

from tests.unit.sources.postgres.stream.stream_capture import (
    BIGINT,
    ITEMS,
    MADE,
    MORE,
    ORDERS,
    TIMESTAMP,
    Capture,
    item,
    items,
    part_of,
    relation,
    row,
    rows,
    transaction,
)

# --- which rows ---


def test_each_table_gets_its_own_rows_of_every_segment(tmp_path: Path) -> None:
    capture = Capture(tmp_path, {ORDERS: view(), ITEMS: items()})
    segments = capture.segment(
        relation(view()),
        relation(items()),
        *transaction(0x20, row(1, "a"), item(7, "x")),
        *transaction(0x30, item(8, "y")),
    )
    segments += capture.segment(*transaction(0x40, row(2, "b")))

    batch = capture.all(segments)

    assert rows(batch) == [(0x20, 1, "a"), (0x40, 2, "b")]
    assert rows(batch, ITEMS) == [(0x20, 7, "x"), (0x30, 8, "y")]
    assert [(each.start, each.goal) for each in batch.parts] == [("0/10", "0/48")] * 2
    assert batch.end == "0/48"


def test_a_table_that_is_ahead_gets_only_the_rows_that_it_has_not(tmp_path: Path) -> None:
    capture = Capture(tmp_path, {ORDERS: view(), ITEMS: items()})
    capture.captured(ORDERS, 0x28, describe_table(view(), TableOptions()).table)
    segments = capture.segment(
        relation(view()),
        relation(items()),
        *transaction(0x20, row(1, "a"), item(7, "x")),
        *transaction(0x30, row(2, "b"), item(8, "y")),
    )

    batch = capture.all(segments)

    assert rows(batch) == [(0x30, 2, "b")]
    assert rows(batch, ITEMS) == [(0x20, 7, "x"), (0x30, 8, "y")]
    assert {each.table.name: each.start for each in batch.parts} == {ORDERS: "0/28", ITEMS: "0/10"}


def test_what_described_only_rows_that_a_table_has_is_no_news_to_it(tmp_path: Path) -> None:
    """It has the column that came since, and cannot follow from a table without it."""
    now = view(ID, WORD, MORE)
    capture = Capture(tmp_path, {ORDERS: now, ITEMS: items()})
    capture.captured(ORDERS, 0x28, describe_table(now, TableOptions()).table)
    change = transaction(0x20, relation(view()), row(1, "a"), relation(now), row(2, "b", 5))
    segments = capture.segment(
        relation(items()), *change, *transaction(0x30, row(3, "c", 6), item(7, "x"))
    )

    batch = capture.all(segments)

    assert batch.failures == ()
    assert rows(batch) == [(0x30, 3, "c", 6)]
    assert rows(batch, ITEMS) == [(0x30, 7, "x")]
    # To a table that has none of it, all of it is news.
    capture.captured(ORDERS, 0x20, describe_table(view(), TableOptions()).table)
    assert [each[1] for each in rows(capture.all(segments))] == [1, 2, 3]


def test_a_truncation_alone_leaves_the_table_as_it_was(tmp_path: Path) -> None:
    capture = Capture(tmp_path)
    segments = capture.segment(relation(view()), *transaction(0x20, row(1, "a")))
    segments += capture.segment(*transaction(0x30, Truncate((1,), TruncateOption(0))))
    capture.commit(capture.all(segments[:1]))

    batch = capture.all(segments[1:])

    assert rows(batch) == [(0x30, None, None)]
    assert part_of(batch).table.shape == capture.known[ORDERS].shape


# --- where a batch ends ---


def changed(capture: Capture) -> CatalogView:
    """A column was added since."""
    capture.catalog[ORDERS] = view(ID, WORD, MORE)
    return capture.catalog[ORDERS]


def test_a_batch_ends_where_a_table_with_changes_begins_to_look_otherwise(tmp_path: Path) -> None:
    capture = Capture(tmp_path, {ORDERS: view(), ITEMS: items()})
    segments = capture.segment(relation(view()), relation(items()), *transaction(0x20, row(1, "a")))
    now = changed(capture)
    segments += capture.segment(*transaction(0x30, relation(now), row(2, "b", 5), item(7, "x")))
    segments += capture.segment(*transaction(0x40, row(3, "c", 6)))

    first, rest = capture.plan(segments, end=0x99)

    # The other table has no changes until there.
    assert [each.table.name for each in first.parts] == [ORDERS]

    assert (first.end, part_of(first).goal, len(first.splits)) == ("0/28", "0/28", 1)
    assert [each.number for each in part_of(first).table.columns] == [1, 3]
    assert rows(first) == [(0x20, 1, "a")]
    assert (rest.segments, rest.end) == (segments[1:], 0x99)
    capture.commit(first)
    second, rest = capture.plan(rest.segments, end=0x99)
    assert rest == Taken((), None)
    assert (second.end, part_of(second).start, part_of(second).goal) == ("0/99", "0/28", "0/99")
    assert rows(second) == [(0x30, 2, "b", 5), (0x40, 3, "c", 6)]


def test_a_batch_ends_at_the_first_change_of_any_table(tmp_path: Path) -> None:
    capture = Capture(tmp_path, {ORDERS: view(), ITEMS: items()})
    segments = capture.segment(
        relation(view()), relation(items()), *transaction(0x20, row(1, "a"), item(7, "x"))
    )
    segments += capture.segment(*transaction(0x30, row(2, "b")))
    now = changed(capture)
    capture.catalog[ITEMS] = items(ID, WORD, MORE)
    segments += capture.segment(
        *transaction(0x40, relation(capture.catalog[ITEMS]), item(8, "y", 5), row(3, "c"))
    )
    segments += capture.segment(*transaction(0x50, relation(now), row(4, "d", 6)))

    first, rest = capture.plan(segments)

    assert rows(first) == [(0x20, 1, "a"), (0x30, 2, "b")]
    assert rows(first, ITEMS) == [(0x20, 7, "x")]
    capture.commit(first)
    second, rest = capture.plan(rest.segments)
    assert (rows(second), rows(second, ITEMS)) == ([(0x40, 3, "c")], [(0x40, 8, "y", 5)])
    capture.commit(second)
    assert rows(capture.all(rest.segments)) == [(0x50, 4, "d", 6)]


def test_what_is_said_again_or_of_a_table_without_changes_ends_no_batch(tmp_path: Path) -> None:
    capture = Capture(tmp_path, {ORDERS: view(), ITEMS: items()})
    segments = capture.segment(
        relation(view()), relation(items()), *transaction(0x20, item(7, "x"))
    )
    # The server says the same again; another table is read meanwhile.
    segments += capture.segment(*transaction(0x30, relation(items()), item(8, "y")))
    now = changed(capture)
    segments += capture.segment(*transaction(0x40, relation(now), row(1, "a", 5)))

    batch = capture.all(segments)

    assert rows(batch) == [(0x40, 1, "a", 5)]
    assert rows(batch, ITEMS) == [(0x20, 7, "x"), (0x30, 8, "y")]


@pytest.mark.parametrize("before_it", [1, 2])
def test_a_large_transaction_is_never_cut(tmp_path: Path, before_it: int) -> None:
    capture = Capture(tmp_path)
    before = capture.segment(relation(view()), *transaction(0x20, row(1, "a")))
    now, long = view(ID, WORD, MORE), "z" * 100
    inside: list[Message] = [row(2 + each, long) for each in range(before_it)]
    inside += [relation(now), row(8, long, 5), row(9, "e", 6)]
    large = capture.large(relation(view()), *transaction(0x30, *inside))
    assert [each.opens is None for each in large] == [True] + [False] * (len(large) - 1)
    capture.catalog[ORDERS] = now

    # Alone it is one batch, though the table changes within it.
    batch = capture.all(large)
    assert [each[:2] for each in rows(batch)] == [
        (0x30, each) for each in (*range(2, 2 + before_it), 8, 9)
    ]
    # After another one it is a batch of its own, from its first segment on.
    first, rest = capture.plan(before + large)
    assert rows(first) == [(0x20, 1, "a")]
    assert (first.end, rest.segments) == ("0/28", large)


# --- what the columns are ---


def test_a_column_that_came_on_the_way_brings_what_it_says_of_older_rows(tmp_path: Path) -> None:
    """Added with a default, and another one renamed, within one transaction."""
    capture = Capture(tmp_path)
    added = view(ID, WORD, attribute(4, "more", missing_value="5", has_default=True))
    renamed = view(ID, attribute(3, "name", TEXT), *added.table.attributes[2:])
    capture.catalog[ORDERS] = renamed
    inside = (relation(added), row(2, "b", 6), relation(renamed), row(3, "c", 7))
    segments = capture.segment(relation(view()), *transaction(0x20, row(1, "a"), *inside))

    batch = capture.all(segments)

    id_, name, more = part_of(batch).table.columns
    assert (name.name, more.name) == ("name", "more")
    assert (more.default, more.rewrote) == (5, False)
    assert (id_.default, id_.rewrote, name.default, name.rewrote) == (None, False, None, False)
    assert rows(batch) == [(0x20, 1, "a", 5), (0x20, 2, "b", 6), (0x20, 3, "c", 7)]


def test_a_column_that_rewrote_older_rows_says_so_whatever_came_after_it(tmp_path: Path) -> None:
    capture = Capture(tmp_path)
    added = view(ID, WORD, attribute(4, "more", has_default=True))
    renamed = view(ID, attribute(3, "name", TEXT), *added.table.attributes[2:])
    capture.catalog[ORDERS] = renamed
    inside = (relation(added), row(2, "b", 6), relation(renamed), row(3, "c", 7))
    segments = capture.segment(relation(view()), *transaction(0x20, row(1, "a"), *inside))

    more = part_of(capture.all(segments)).table.columns[2]

    assert (more.default, more.rewrote) == (None, True)


@pytest.mark.parametrize(
    ("before", "now", "type_", "values"),
    [
        (INT, BIGINT, Primitive.LONG, (5, 2**40)),
        # As the server wrote it, and not as a timestamp would be written by us.
        (TIMESTAMP, TEXT, Primitive.STRING, ("2024-02-29 10:00:00", "x")),
    ],
)
def test_rows_before_a_change_of_type_are_read_as_the_newest_one(
    tmp_path: Path, before: int, now: int, type_: Primitive, values: tuple[object, object]
) -> None:
    then = view(ID, WORD, attribute(4, "more", before))
    capture = Capture(tmp_path, {ORDERS: then})
    retyped = view(ID, WORD, attribute(4, "more", now))
    capture.catalog[ORDERS] = retyped
    inside = (row(1, "a", values[0]), relation(retyped), row(2, "b", values[1]))
    segments = capture.segment(relation(then), *transaction(0x20, *inside))

    batch = capture.all(segments)

    assert part_of(batch).table.columns[2].type is type_
    assert rows(batch) == [(0x20, 1, "a", values[0]), (0x20, 2, "b", values[1])]


def test_a_column_that_was_dropped_is_left_out_and_the_others_stay_themselves(
    tmp_path: Path,
) -> None:
    capture = Capture(tmp_path, {ORDERS: view(ID, WORD, MORE)})
    now = view(ID, MORE, dropped_numbers=(2, 3))
    capture.catalog[ORDERS] = now
    inside = (row(1, "a", 5), relation(now), row(2, 6))
    segments = capture.segment(relation(view(ID, WORD, MORE)), *transaction(0x20, *inside))

    assert rows(capture.all(segments)) == [(0x20, 1, 5), (0x20, 2, 6)]


def test_a_column_that_came_back_within_one_transaction_stops_its_table(tmp_path: Path) -> None:
    """Rows before and after it look the same, and nobody can tell them apart."""
    capture = Capture(tmp_path, {ORDERS: view(), ITEMS: items()})
    segments = capture.segment(
        relation(items()), *transaction(0x20, relation(view()), row(1, "a"), xid=MADE)
    )
    capture.commit(capture.all(segments))
    again = view(ID, attribute(4, "word", TEXT), dropped_numbers=(2, 3))
    capture.catalog[ORDERS] = again
    inside = (relation(view(ID)), row(2), relation(again), row(3, "c"))
    segments = capture.segment(*transaction(0x30, row(1, "a"), *inside, item(7, "x")))

    batch = capture.all(segments)

    (trouble,) = batch.failures
    assert (trouble.table, trouble.error.table) == (ORDERS, ORDERS)
    assert isinstance(trouble.error, UnsupportedSchemaChangeError)
    assert "came back" in str(trouble.error)
    assert rows(batch, ITEMS) == [(0x30, 7, "x")]


# --- looks into the catalog ---


def test_the_catalog_is_asked_again_only_when_the_server_describes_a_table(tmp_path: Path) -> None:
    capture = Capture(tmp_path)
    segments = capture.segment(relation(view()), *transaction(0x20, row(1, "a")))
    capture.commit(capture.all(segments))
    assert capture.looks == [{INT, TEXT}]
    segments = capture.segment(*transaction(0x30, row(2, "b")))
    capture.commit(capture.all(segments))
    assert len(capture.looks) == 1
    # Sent again, it may be another table by now, although it looks the same.
    segments = capture.segment(*transaction(0x40, relation(view()), row(3, "c")))
    capture.commit(capture.all(segments))
    assert len(capture.looks) == 2


def test_a_change_behind_what_is_known_is_read_by_a_new_look(tmp_path: Path) -> None:
    capture = Capture(tmp_path)
    segments = capture.segment(relation(view()), *transaction(0x20, row(1, "a")))
    capture.commit(capture.all(segments))
    now = changed(capture)
    segments = capture.segment(*transaction(0x30, row(2, "b"), relation(now), row(3, "c", 5)))

    batch = capture.all(segments)

    assert batch.failures == ()
    assert rows(batch) == [(0x30, 2, "b", None), (0x30, 3, "c", 5)]
    # With the types of what was known, and of what came.
    assert capture.looks[-1] == {INT, TEXT}


def test_columns_are_recognised_by_the_transaction_that_described_them(tmp_path: Path) -> None:
    """Dropped and added: only the age of what the catalog shows tells when."""
    capture = Capture(tmp_path)
    # Numbers of transactions are on a circle: to zero, these would be old.
    by = 3_000_000_000
    now = view(ID, MORE, dropped_numbers=(2, 3), changed_by=((1, 3), (2, 3), (3, by), (4, by)))
    capture.catalog[ORDERS] = now
    segments = capture.segment(*transaction(0x20, relation(now), row(1, 5), xid=by + 1))
    assert rows(capture.all(segments)) == [(0x20, 1, 5)]

    # Outside of a transaction nothing tells its age.
    other = Capture(tmp_path / "other", {ORDERS: view()})
    other.catalog[ORDERS] = now
    batch, _ = other.plan(other.segment(relation(now), *transaction(0x20, row(1, 5))))
    (trouble,) = batch.failures
    assert isinstance(trouble.error, UnsupportedSchemaChangeError)


# --- one table's trouble ---


def test_a_table_that_is_not_in_the_catalog_stops_and_the_others_go_on(tmp_path: Path) -> None:
    capture = Capture(tmp_path, {ORDERS: view(), ITEMS: items()})
    del capture.catalog[ORDERS]
    segments = capture.segment(
        relation(view()), relation(items()), *transaction(0x20, row(1, "a"), item(7, "x"))
    )

    batch = capture.all(segments)

    (trouble,) = batch.failures
    assert isinstance(trouble.error, UnsupportedSchemaChangeError)
    assert trouble.error.next_step == "frazil resync shop.orders"
    assert [each.table.name for each in batch.parts] == [ITEMS]
    assert rows(batch, ITEMS) == [(0x20, 7, "x")]


def test_a_defect_in_one_table_is_reported_and_the_others_go_on(tmp_path: Path) -> None:
    def options(table: str) -> TableOptions:
        if table == ORDERS:
            raise KeyError("a secret")
        return TableOptions()

    capture = Capture(tmp_path, {ORDERS: view(), ITEMS: items()}, options)
    segments = capture.segment(
        relation(view()), relation(items()), *transaction(0x20, row(1, "a"), item(7, "x"))
    )

    batch = capture.all(segments)

    (trouble,) = batch.failures
    assert isinstance(trouble.error, DefectError)
    assert trouble.error.table == ORDERS
    assert "secret" not in str(trouble.error)
    assert rows(batch, ITEMS) == [(0x20, 7, "x")]


# --- by which columns rows are found ---

BOTH = ("id", "word")
FULL = {"identity": ReplicaIdentity.FULL, "marked": BOTH}
BY_INDEX = {"identity": ReplicaIdentity.INDEX}
NO_KEY = {"key": None, "identity_columns": ()}
BY_WORD = {"key": PrimaryKey(columns=("word",), is_deferrable=False), "identity_columns": ("word",)}
WHOLE_ROW = {"identity_columns": BOTH}


@pytest.mark.parametrize(
    ("before", "sent", "now", "key"),
    [
        ({}, {}, {}, (1,)),
        ({}, {"marked": ()}, NO_KEY, ()),
        ({}, {"marked": ()}, {}, ()),
        ({}, {"marked": ("word",)}, BY_WORD, (3,)),
        ({}, {"marked": BOTH}, {}, ()),
        (WHOLE_ROW, FULL, WHOLE_ROW, (1,)),
        ({}, BY_INDEX, {}, (1,)),
        ({}, {**BY_INDEX, "marked": ("word",)}, {}, ()),
        (WHOLE_ROW, FULL, {**WHOLE_ROW, "key": None}, ()),
        (WHOLE_ROW, FULL, {**WHOLE_ROW, "key": BY_WORD["key"]}, (3,)),
        # Captured without a key, it has none until it is read from its first row.
        (NO_KEY, {}, {}, ()),
        (NO_KEY, FULL, WHOLE_ROW, ()),
    ],
    ids=[
        "the same",
        "its primary key was dropped",
        "its primary key was dropped, and came back since",
        "its primary key is another",
        "its primary key had another column meanwhile",
        "the whole row",
        "an index over the key",
        "an index without the key",
        "the whole row, and the key was dropped",
        "the whole row, and the key is another",
        "a key that came later",
        "a key that came later, and the whole row",
    ],
)
def test_rows_are_found_by_the_key_that_they_were_sent_with(
    tmp_path: Path,
    before: dict[str, Any],
    sent: dict[str, Any],
    now: dict[str, Any],
    key: tuple[int, ...],
) -> None:
    capture = Capture(tmp_path, {ORDERS: view(**before)})
    capture.catalog[ORDERS] = view(**now)
    segments = capture.segment(relation(view(), **sent), *transaction(0x20, row(1, "a")))

    batch = capture.all(segments)

    assert part_of(batch).table.key == key
    assert rows(batch) == [(0x20, 1, "a")]
