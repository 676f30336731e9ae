"""What a source is prepared for, and what is announced about tables before a batch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from frazil.errors import (
    MarkerLostError,
    StorageError,
    TableNotFoundError,
)
from frazil.ingest.batch_run import position_if_known
from frazil.ingest.captured_table import CapturedPosition
from frazil.ingest.opened_tables import OpenedTables
from frazil.ledger.table_state import Copying, Streaming
from tests.support.ingest.paused_tables import (
    BEGAN,
    NAME,
    OTHER,
    PAUSED,
    Ledger,
    Source,
    ingester_of,
    state_of,
)

if TYPE_CHECKING:
    from frazil.model.marker import Marker


class Broken:
    """A captured table whose changelog answers with this."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def load_position(self, *_whose: object) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.fault("N33", "N44")
@pytest.mark.parametrize("is_streaming", [True, False])
@pytest.mark.parametrize(
    "error", [MarkerLostError("none"), TableNotFoundError("gone"), IndexError("a value of a row")]
)
def test_a_broken_table_does_not_keep_the_source_from_being_prepared(
    error: Exception, *, is_streaming: bool
) -> None:
    broken: Any = Broken(error)
    assert position_if_known(lambda: broken, is_streaming=is_streaming) is None


def test_a_position_that_a_streaming_table_may_have_later_is_waited_for() -> None:
    away: Any = Broken(StorageError("away"))
    with pytest.raises(StorageError):
        position_if_known(lambda: away, is_streaming=True)
    # A paused table has its own error already.
    assert position_if_known(lambda: away, is_streaming=False) is None


@pytest.mark.fault("N33")
def test_a_source_is_compared_with_every_table_whose_rows_stay() -> None:
    third, fourth = "public.third", "public.fourth"
    states = {NAME: Streaming(), OTHER: PAUSED, third: Streaming(), fourth: Copying()}
    table_states = {name: state_of(name, each) for name, each in states.items()}
    tables: dict[str, Any] = {
        NAME: Broken(CapturedPosition(position="0/12", epoch=1, shape="")),
        OTHER: Broken(CapturedPosition(position="0/14", epoch=1, shape="")),
        third: Broken(MarkerLostError("none")),
        fourth: Broken(CapturedPosition(position="0/99", epoch=1, shape="")),
    }
    captured = OpenedTables(tables.__getitem__)
    assert captured.load_reached(table_states) == ["0/12", "0/14"]


@pytest.mark.fault("N33")
@pytest.mark.parametrize(("epoch", "is_written"), [(1, False), (2, True)])
def test_a_source_that_begins_on_another_timeline_is_written_down(
    epoch: int, *, is_written: bool
) -> None:
    """Else tables would move on a timeline that the ledger does not know."""
    source, ledger = Source(NAME), Ledger(state_of(NAME, Copying()))
    begun: list[Marker] = []

    def restart_at(goal: Marker) -> Any:
        begun.append(goal)
        return ledger.record((), start=ledger.marker.position, goal=goal, table_states=())

    ledger.restart_at = restart_at  # type: ignore[attr-defined]
    source.generation = epoch
    ingester_of(source, ledger).start()
    assert [each.epoch for each in begun] == ([epoch] if is_written else [])


@pytest.mark.fault("N33")
def test_a_new_timeline_is_written_down_before_any_table_moves_on_it() -> None:
    """Else the marker of a table would look like another history after a crash."""
    source, ledger = Source(NAME), Ledger(state_of(NAME, Streaming()))
    ledger.marker = replace(ledger.marker, witness="seen")
    source.generation = 2
    ingester_of(source, ledger).start()
    assert (ledger.marker.epoch, ledger.marker.position) == (2, BEGAN)
    assert ledger.marker.witness == "seen"


def test_a_table_that_another_process_has_reset_is_announced_before_the_batch_is_planned() -> None:
    """Its copy need not wait for a batch that takes long."""
    source, ledger = Source(NAME), Ledger(state_of(NAME, Streaming()))
    ingester = ingester_of(source, ledger)
    announced: list[set[str]] = []
    ingester.follow_states(lambda: announced.append(ingester.tables_to_copy))
    ingester.step()
    ledger.known[NAME] = state_of(NAME, Copying())
    ledger.commits += 1
    seen_when_planning: list[set[str]] = []
    source.while_planning = lambda: seen_when_planning.append(announced[-1])
    ingester.step()
    assert seen_when_planning == [{NAME}]


def test_a_table_that_is_new_is_announced() -> None:
    source, ledger = Source(), Ledger()
    ingester = ingester_of(source, ledger)
    announced: list[set[str]] = []
    ingester.follow_states(lambda: announced.append(ingester.tables_to_copy))
    ingester.step()
    source.tables = (NAME,)
    ingester.step()
    assert announced[-1] == {NAME}
