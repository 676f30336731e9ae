"""Changes with one key and one sequence: the same in one merge and in two, in every kind of table.

What says the same is a replay and changes nothing. What says something else is DuplicateKeyError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from frazil.errors import DuplicateKeyError
from frazil.model.policy import Deletes, Order
from tests.support.lake.sql_changelogs import sql_changelog

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.lake.sql_changelogs import SqlChangelog

__all__ = ["sql_changelog"]

pytestmark = [pytest.mark.spark, pytest.mark.fault("N29")]

COLUMNS = (
    "id bigint, v string, m map<string, double>, "
    "s struct<a: array<int>, b: timestamp_ntz>, op string, seq bigint"
)
NESTED = "map('x', double('nan')), named_struct('a', array(1, null), 'b', null)"
EMPTY = "cast(null as map<string, double>), cast(null as struct<a: array<int>, b: timestamp_ntz>)"
# Each order and each policy once in CI; the other pairs in deep runs.
POLICIES = [
    pytest.param(Order.APPEND, Deletes.APPLY),
    pytest.param(Order.PER_KEY, Deletes.SOFT),
    pytest.param(Order.APPEND, Deletes.SOFT, marks=pytest.mark.deep),
    pytest.param(Order.PER_KEY, Deletes.APPLY, marks=pytest.mark.deep),
]


def row(key: int, value: str, operation: str, sequence: int, nested: str = NESTED) -> str:
    return f"({key}, '{value}', {nested}, '{operation}', {sequence})"


def deleted(key: int, sequence: int) -> str:
    return f"({key}, null, {EMPTY}, 'D', {sequence})"


def truncate(sequence: int) -> str:
    return f"(null, null, {EMPTY}, 'T', {sequence})"


FIRST = (
    row(1, "a", "I", 5),
    row(2, "b", "I", 4),
    deleted(2, 5),
    row(3, "c", "I", 5, EMPTY),
    row(5, "e", "I", 3),
)
CONTRADICTIONS = {
    "another value": [row(1, "b", "U", 5)],
    "another member": [row(1, "a", "U", 5, NESTED.replace("1, null", "2, null"))],
    "null for empty": [row(3, "c", "I", 5, EMPTY.replace("cast(null as map", "cast(map() as map"))],
    "a delete": [deleted(1, 5)],
    "a row that was deleted": [row(2, "b", "I", 5)],
    "hidden by a newer change": [row(1, "b", "U", 5), row(1, "c", "U", 6)],
    "hidden by a newer delete": [deleted(1, 5), deleted(1, 6)],
}


def visible(table: SqlChangelog) -> list[tuple[object, ...]]:
    """Keys and values that are not deleted."""
    soft = table.settings.deletes is Deletes.SOFT
    return table.rows(f"id, v from {table.mirror} where {'not cdc_deleted' if soft else 'true'} --")


@pytest.mark.parametrize(("order", "deletes"), POLICIES)
def test_the_same_change_in_another_merge_is_a_replay(
    order: Order, deletes: Deletes, sql_changelog: Callable[..., SqlChangelog]
) -> None:
    table = sql_changelog(COLUMNS, order=order, deletes=deletes)
    table.write(*FIRST)
    table.merge()
    before = repr(table.rows())
    table.write(row(1, "a", "U", 5), deleted(2, 5), row(3, "c", "r", 5, EMPTY))
    report = table.merge()
    assert repr(table.rows()) == before
    assert (report.commits[0].rows_read, report.commits[0].rows_written) == (3, 0)
    # Another key may have the same sequence, known or not, and a newer change follows.
    table.write(row(4, "d", "I", 5), row(1, "a", "U", 5), row(1, "z", "U", 6))
    table.merge()
    assert visible(table) == [(1, "z"), (3, "c"), (4, "d"), (5, "e")]


def error_of(table: SqlChangelog) -> str:
    try:
        table.merge()
    except DuplicateKeyError as error:
        return error.message
    return "none"


@pytest.mark.parametrize(("order", "deletes"), POLICIES)
def test_another_change_in_another_merge_is_the_error_of_one_merge(
    order: Order, deletes: Deletes, sql_changelog: Callable[..., SqlChangelog]
) -> None:
    table = sql_changelog(COLUMNS, order=order, deletes=deletes)
    table.write(*FIRST)
    table.merge()
    before = repr(table.rows())
    changelog = table.settings.changelog
    (start,) = table.spark.sql(
        f"select max(snapshot_id) from {table.changelog}.snapshots"
    ).first() or (0,)
    for what, rows in CONTRADICTIONS.items():
        table.write(*rows)
        message = error_of(table)
        assert message.endswith("1 keys have different changes with one sequence."), what
        name = f"'logs.{changelog.table}', {start}"
        table.spark.sql(f"call {changelog.catalog}.system.rollback_to_snapshot({name})")
    assert repr(table.rows()) == before


@pytest.mark.parametrize(("order", "deletes"), POLICIES)
def test_a_truncate_comes_first_at_its_sequence_whenever_it_is_merged(
    order: Order, deletes: Deletes, sql_changelog: Callable[..., SqlChangelog]
) -> None:
    table = sql_changelog(COLUMNS, order=order, deletes=deletes)
    table.write(row(1, "a", "I", 5), row(3, "c", "I", 4), row(6, "f", "I", 4))
    table.merge()
    table.write(truncate(5), row(6, "g", "I", 5))
    table.merge()
    assert visible(table) == [(1, "a"), (6, "g")]
    # Repeated, it removes nothing, and what it removed may be there again at its sequence.
    table.write(truncate(5), row(3, "h", "I", 5), row(1, "a", "I", 5))
    table.merge()
    assert visible(table) == [(1, "a"), (3, "h"), (6, "g")]


@pytest.mark.parametrize("order", Order)
def test_an_ignored_delete_is_nothing_in_one_merge_and_in_two(
    order: Order, sql_changelog: Callable[..., SqlChangelog]
) -> None:
    table = sql_changelog(COLUMNS, order=order, deletes=Deletes.IGNORE)
    table.write(row(1, "a", "I", 5), deleted(1, 5))
    table.merge()
    table.write(deleted(1, 5), truncate(5), row(2, "b", "I", 5))
    table.merge()
    assert table.rows("id, v") == [(1, "a"), (2, "b")]


def test_replays_are_recognised_by_the_columns_that_a_change_determines(
    sql_changelog: Callable[..., SqlChangelog],
) -> None:
    columns = "id bigint, v string, old string, s struct<a: int, b: int>, op string, seq bigint"
    table = sql_changelog(columns, order=Order.PER_KEY)
    table.write("(1, 'a', 'kept', named_struct('a', 1, 'b', 2), 'I', 5)")
    table.merge()
    table.spark.sql(f"alter table {table.changelog} drop columns (old, s.b)")
    table.spark.sql(f"alter table {table.changelog} add columns (new string, s.c int)")
    table.spark.sql(f"alter table {table.mirror} add column own string")
    table.spark.sql(f"update {table.mirror} set own = 'mine'")
    table.write("(1, 'a', named_struct('a', 1, 'c', null), 'I', 5, null)")
    table.merge()
    assert table.rows("id, v, old, own") == [(1, "a", "kept", "mine")]


def test_a_key_change_that_comes_once_more_keeps_what_was_not_sent(
    sql_changelog: Callable[..., SqlChangelog],
) -> None:
    columns = "id bigint, v string, big string, op string, seq bigint, left_out array<int>, "
    table = sql_changelog(
        f"{columns} was struct<id: bigint>",
        order=Order.APPEND,
        unchanged="left_out",
        previous_key="was",
    )
    moved = "(3, 'c', null, 'I', 3, array(3), named_struct('id', 2))"
    table.write("(2, 'b', 'big', 'I', 1, null, null)")
    table.merge()
    table.write("(2, null, null, 'D', 2, null, null)", moved)
    table.merge()
    table.write(moved, "(3, 'd', null, 'U', 4, array(3), null)")
    table.merge()
    assert table.rows() == [(3, "d", "big")]


@pytest.mark.parametrize("case", ["replay", "contradiction", "truncate"])
def test_changes_are_compared_also_when_a_nested_column_has_changed_since(
    case: str, sql_changelog: Callable[..., SqlChangelog]
) -> None:
    columns = "id bigint, s struct<a: int, b: int>, l array<struct<x: int>>, op string, seq bigint"
    table = sql_changelog(columns, order=Order.APPEND)
    table.spark.sql(f"alter table {table.changelog} set tblproperties ('format-version' = '3')")
    old = "named_struct('a', 1, 'b', 2), array(named_struct('x', 1), null)"
    table.write(f"(1, {old}, 'I', 5)", f"(2, {old}, 'I', 4)")
    table.merge()
    changelog = table.lake.open(table.settings.changelog)._table
    jvm = table.spark._jvm.org.apache.iceberg  # type: ignore[union-attr]
    seven, number = jvm.expressions.Literal.of(7), jvm.types.Types.IntegerType.get()
    update = changelog.updateSchema().addColumn("s", "late", number, None, seven)
    update.deleteColumn("s.b").addColumn("l.element", "y", number).commit()
    table.spark.sql(f"refresh table {table.changelog}")
    new = "named_struct('a', {}, 'late', 7), array(named_struct('x', 1, 'y', null), null)"
    if case == "truncate":
        table.write("(null, null, null, 'T', 5)")
        table.merge()
        assert table.rows("id") == [(1,)]
    elif case == "contradiction":
        table.write(f"(1, {new.format(9)}, 'U', 5)")
        assert error_of(table).endswith("1 keys have different changes with one sequence.")
    else:
        table.write(f"(1, {new.format(1)}, 'U', 5)")
        report = table.merge()
        assert (report.commits[0].rows_read, report.commits[0].rows_written) == (1, 0)
