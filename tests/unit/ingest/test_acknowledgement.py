"""What the source may be acknowledged to after a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from frazil.ingest.captured_table import Prepared
from frazil.ingest.planning.acknowledgement import plan_acknowledgement
from frazil.ledger.table_state import Copying, Gone, Paused, Streaming, TableState
from frazil.model.cause import Cause
from frazil.model.source_table import SourceTable
from frazil.sources.protocol import Batch, Restart, TablePart

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from frazil.model.marker import Position

ONE, TWO = "shop.one", "shop.two"
PAUSED = Paused("0/1", Cause(None, "why"))


def table(name: str) -> SourceTable:
    return SourceTable(name=name, identity="i", shape="", columns=())


def part(name: str, goal: Position) -> TablePart:
    return TablePart(table=table(name), start=None, goal=goal)


def planned(
    known: Position | None,
    end: Position | None,
    states: Mapping[str, Any],
    *,
    left_out: Collection[str] = (),
    planned_for: Collection[str] = (ONE, TWO),
    is_copying: bool = False,
) -> Position | None:
    none: Any = None
    goals = {ONE: {"one/0": 5}, TWO: {"two/0": 7}}
    batch = Batch(
        reader=none,
        splits=(),
        parts=tuple(part(name, goal) for name, goal in goals.items()),
        end=end,
    )
    return plan_acknowledgement(
        batch,
        known,
        {name: TableState(table=name, identity="i", state=each) for name, each in states.items()},
        left_out=left_out,
        planned_for=planned_for,
        is_copying=is_copying,
    )


BOTH = {ONE: Streaming(), TWO: Streaming()}


@pytest.mark.parametrize("other", [PAUSED, Gone("0/1")])
def test_one_log_is_held_for_every_table_that_needs_it(other: object) -> None:
    assert planned("0/10", "0/20", BOTH) == "0/20"
    assert planned("0/10", "0/20", {ONE: Streaming(), TWO: other}) == "0/10"
    assert planned("0/10", "0/20", BOTH, planned_for=[ONE]) == "0/10"
    assert planned("0/10", "0/20", BOTH, is_copying=True) == "0/10"
    assert planned("0/10", None, BOTH) == "0/10"
    assert planned(None, "0/20", BOTH) == "0/20"


@pytest.mark.parametrize("other", [PAUSED, Gone("0/1"), Copying()])
def test_a_partition_is_held_for_its_own_table_only(other: object) -> None:
    end = {"one/0": 5, "two/0": 7, "idle/0": 9}
    assert planned({"one/0": 1}, end, BOTH) == end
    states = {ONE: Streaming(), TWO: other}
    assert planned({"one/0": 1}, end, states) == {"one/0": 5, "idle/0": 9}
    assert planned({}, end, BOTH, left_out=[ONE]) == {"two/0": 7, "idle/0": 9}
    assert planned({}, None, BOTH) == {}


@pytest.mark.parametrize(
    ("goal", "restart", "is_committed"),
    [("0/20", None, False), ({"one/0": 5}, None, True), ("0/20", Restart(1, "0/1"), True)],
)
def test_without_rows_a_marker_moves_by_partition_and_for_a_restart(
    goal: Position, restart: Restart | None, *, is_committed: bool
) -> None:
    """By partition nothing else says where to continue."""
    some: Any = type("Plan", (), {"evolves": False})
    prepared = Prepared(
        part=TablePart(table=table(ONE), start=None, goal=goal, restart=restart),
        plan=some,
        changelog=some,
        target=some,
        epoch=0,
        seen=None,
        has_rows=False,
        has_new_columns=False,
    )
    assert prepared.must_be_committed == is_committed
