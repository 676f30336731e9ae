"""A mirror whose order is changed: it is recorded, and what was merged before counts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from frazil.errors import OutOfOrderError
from frazil.merge.index_operations import verify_index
from frazil.model.policy import Deletes, Order
from frazil.verify.mirror_verifier import verify_mirror
from tests.support.lake.sql_changelogs import sql_changelog

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.lake.sql_changelogs import SqlChangelog

__all__ = ["sql_changelog"]

pytestmark = [pytest.mark.spark, pytest.mark.fault("N30")]

COLUMNS = "id bigint, v string, op string, seq timestamp"


def at(minute: int) -> str:
    return f"timestamp'2026-01-01 {minute // 60:02}:{minute % 60:02}:00Z'"


def row(key: int, value: str, minute: int, operation: str = "U") -> str:
    return f"({key}, '{value}', '{operation}', {at(minute)})"


def set_order(table: SqlChangelog, order: Order) -> None:
    table.settings = replace(table.settings, order=order)


def recorded(table: SqlChangelog) -> str:
    state = table.lake.open(table.settings.mirror).load_state()
    return state.properties["frazil.order"]


@pytest.mark.parametrize(
    ("format_version", "deletes"), [(3, Deletes.APPLY), (2, Deletes.APPLY), (3, Deletes.SOFT)]
)
def test_the_remedy_of_a_change_that_came_late_works(
    format_version: int, deletes: Deletes, sql_changelog: Callable[..., SqlChangelog]
) -> None:
    table = sql_changelog(
        COLUMNS, order=Order.APPEND, format_version=format_version, deletes=deletes
    )
    table.write(row(1, "a", 10), row(2, "b", 20), row(3, "c", 20), row(3, "c", 30, "D"))
    table.merge()
    assert recorded(table) == "append"
    table.write(row(1, "late", 5), row(4, "late and new", 6), row(3, "late", 25), row(2, "z", 40))
    with pytest.raises(OutOfOrderError, match="older") as caught:
        table.merge()
    assert "order: per_key" in str(caught.value.next_step)
    set_order(table, Order.PER_KEY)
    report = table.merge()
    assert any("per_key" in each for each in report.commits[0].schema_changes)
    is_visible = "not cdc_deleted" if deletes is Deletes.SOFT else "true"
    shown = f"id, v from {table.mirror} where {is_visible} --"
    assert table.rows(shown) == [(1, "a"), (2, "z"), (4, "late and new")]
    assert recorded(table) == "per_key"
    # In later merges as well, although the marker has gone on.
    table.write(row(1, "late", 15), row(2, "late", 35), row(4, "newer", 7), row(1, "newer", 50))
    table.merge()
    assert table.rows(shown) == [(1, "newer"), (2, "z"), (4, "newer")]
    # A row that has no sequence of its own counts as the highest that was merged before.
    table.write(row(3, "again", 60), row(5, "e", 61), f"(null, null, 'T', {at(29)})")
    table.merge()
    assert table.rows(shown) == [(1, "newer"), (2, "z"), (3, "again"), (5, "e")]
    assert verify_index(table.spark, table.lake, table.settings).is_sound


def test_earlier_rows_are_not_older_than_a_late_truncate(
    sql_changelog: Callable[..., SqlChangelog],
) -> None:
    table = sql_changelog(COLUMNS, order=Order.APPEND)
    table.write(row(1, "a", 10), row(2, "b", 30))
    table.merge()
    set_order(table, Order.PER_KEY)
    table.write(f"(null, null, 'T', {at(20)})", row(3, "c", 40))
    table.merge()
    # It is not known which of them is older, so none is removed.
    assert table.rows("id, v") == [(1, "a"), (2, "b"), (3, "c")]
    table.write(f"(null, null, 'T', {at(31)})")
    table.merge()
    assert table.rows("id, v") == [(3, "c")]


def test_a_mirror_goes_to_append_and_back_and_no_late_row_wins(
    sql_changelog: Callable[..., SqlChangelog],
) -> None:
    table = sql_changelog(COLUMNS, order=Order.PER_KEY)
    table.write(row(1, "a", 10), row(2, "b", 10), row(3, "c", 10))
    table.merge()
    set_order(table, Order.APPEND)
    table.write(row(1, "in append", 20), row(3, "c", 21, "D"), row(4, "d", 22))
    table.merge()
    assert recorded(table) == "append"
    set_order(table, Order.PER_KEY)
    table.write(row(1, "late", 15), row(3, "late", 15), row(2, "newer", 15), row(4, "late", 3))
    table.merge()
    assert recorded(table) == "per_key"
    assert table.rows("id, v") == [(1, "in append"), (2, "newer"), (4, "d")]
    verdict = verify_mirror(table.spark, table.lake, table.settings)
    assert (verdict.missing, verdict.surplus, verdict.different) == (0, 0, 0)


@pytest.mark.parametrize("order", Order)
def test_a_mirror_without_a_recorded_order_has_the_one_of_its_columns(
    order: Order, sql_changelog: Callable[..., SqlChangelog]
) -> None:
    table = sql_changelog(COLUMNS, order=order)
    table.write(row(1, "a", 10), row(2, "b", 20))
    table.merge()
    table.spark.sql(f"alter table {table.mirror} unset tblproperties ('frazil.order')")
    set_order(table, Order.PER_KEY)
    table.write(row(1, "late", 5), row(1, "between", 15), row(2, "newer", 30))
    table.merge()
    kept = "between" if order is Order.PER_KEY else "a"
    assert table.rows("id, v") == [(1, kept), (2, "newer")]
