"""The state of each table after the source was inspected."""

from __future__ import annotations

from dataclasses import replace

import pytest

from frazil.errors import (
    FrazilError,
    PermissionError,  # noqa: A004
)
from frazil.ingest.planning.table_decisions import judge_tables, plan_needs
from frazil.ledger.table_state import (
    Copying,
    Gone,
    Paused,
    Removed,
    ResyncRequired,
    Streaming,
    TableState,
)
from frazil.model.cause import Cause
from frazil.model.marker import Marker
from frazil.model.source_table import SourceTable, TableBegin

NAME = "public.users"
POSITION = "0/20"


def table(identity: str = "same") -> SourceTable:
    return SourceTable(name=NAME, identity=identity, shape="", columns=())


def state_of(state: object, identity: str = "same") -> TableState:
    return TableState(table=NAME, identity=identity, state=state)  # type: ignore[arg-type]


def explain_identity_change(before: str, now: str, *, was_gone: bool = False) -> tuple[str, ...]:
    if was_gone and now.startswith("implicit"):
        return ("it was gone",)
    if now.startswith("more"):
        return ()
    return () if before == now else (f"it is {now}", f"it was {before}")


# What both differences become.
OTHER = "it is another, and it was same"


def judged(
    before: TableState | None,
    found: SourceTable | None,
    *,
    is_wanted: bool = True,
    retries_paused: bool = False,
    obstacle_met: Cause | None = None,
) -> tuple[TableState, ...]:
    return judge_tables(
        {} if before is None else {NAME: before},
        {} if found is None else {NAME: found},
        selects=lambda _name: is_wanted,
        explain_identity_change=explain_identity_change,
        position=POSITION,
        retries_paused=retries_paused,
        obstacles_met={} if obstacle_met is None else {NAME: obstacle_met},
    )


def live(identity: str = "same", obstacle: FrazilError | None = None) -> SourceTable:
    return replace(table(identity), begins=TableBegin.STREAM, obstacle=obstacle)


@pytest.mark.parametrize("before", [None, state_of(Removed("0/10"), "other")])
def test_a_table_that_begins_live_streams_from_the_start(before: TableState | None) -> None:
    """Without an identity: nothing of it was captured."""
    assert judged(before, live()) == (state_of(Streaming(), ""),)
    assert judged(state_of(Streaming(), ""), live()) == ()
    assert judged(state_of(Streaming(), ""), live("another")) == ()


def test_a_live_table_waits_for_an_obstacle_and_then_streams() -> None:
    refused = PermissionError("no.", next_step="grant")
    (waits,) = judged(None, live(obstacle=refused))
    assert waits == state_of(Copying(Cause.of(refused)), "")
    assert judged(waits, live()) == (state_of(Streaming(), ""),)


def test_a_live_table_that_goes_before_anything_was_captured_is_removed() -> None:
    for state in (Streaming(), Paused("0/10", Cause(None, "why"))):
        assert judged(state_of(state, ""), None) == (state_of(Removed(POSITION), ""),)
    assert judged(state_of(Streaming()), None) == (state_of(Gone(POSITION)),)


def test_a_live_table_that_is_paused_before_anything_was_captured_is_tried_again() -> None:
    paused = state_of(Paused("0/10", Cause(None, "why")), "")
    assert judged(paused, live()) == ()
    assert judged(paused, live(), retries_paused=True) == (state_of(Streaming(), ""),)


def test_a_resync_of_a_live_table_is_requested_until_it_restarts() -> None:
    assert judged(state_of(Copying()), live()) == ()
    assert judged(state_of(Copying(), ""), live()) == (state_of(Streaming(), ""),)


@pytest.mark.parametrize("before", [None, state_of(Removed("0/10"), "other")])
def test_a_table_that_is_new_or_comes_back_is_copied(before: TableState | None) -> None:
    assert judged(before, table()) == (state_of(Copying()),)


def test_a_table_that_is_not_selected_is_not_captured() -> None:
    assert judged(None, table(), is_wanted=False) == ()


@pytest.mark.parametrize(
    "state",
    [Copying(), Streaming(), Paused("0/10", Cause(None, "why")), ResyncRequired("0/10", "why")],
    ids=str,
)
def test_a_table_removed_from_the_configuration_leaves(state: object) -> None:
    assert judged(state_of(state), table(), is_wanted=False) == (state_of(Removed(POSITION)),)


@pytest.mark.parametrize(
    "state", [Streaming(), Copying(), Paused("0/10", Cause(None, "why"))], ids=str
)
def test_an_unchanged_state_is_not_reported(state: object) -> None:
    assert judged(state_of(state), table()) == ()


@pytest.mark.parametrize("state", [Streaming(), Paused("0/10", Cause(None, "why"))], ids=str)
def test_another_table_under_the_same_name_needs_a_resync_and_says_why(state: object) -> None:
    assert judged(state_of(state), table("another")) == (state_of(ResyncRequired(POSITION, OTHER)),)


def test_a_table_that_is_still_to_be_copied_may_be_another_one() -> None:
    assert judged(state_of(Copying()), table("another")) == ()


@pytest.mark.parametrize("state", [Streaming(), Paused("0/10", Cause(None, "why"))], ids=str)
def test_what_more_is_known_of_the_same_table_is_recorded(state: object) -> None:
    assert judged(state_of(state), table("more")) == (state_of(state, "more"),)
    assert judged(state_of(Copying()), table("more")) == ()


@pytest.mark.fault("N35")
def test_a_table_that_comes_back_may_have_missed_something() -> None:
    gone = state_of(Gone("0/10"), "implicit")
    expected = state_of(ResyncRequired(POSITION, "it was gone"), "implicit")
    assert judged(gone, table("implicit")) == (expected,)
    assert judged(state_of(Paused("0/10", Cause(None, "why")), "implicit"), table("implicit")) == ()


def test_only_a_resync_ends_the_need_for_one() -> None:
    for found in (table(), table("another"), None):
        assert judged(state_of(ResyncRequired("0/10", "why")), found, retries_paused=True) == ()


@pytest.mark.parametrize("state", [Streaming(), Paused("0/10", Cause(None, "why"))], ids=str)
def test_a_table_that_is_gone_stops_by_name(state: object) -> None:
    assert judged(state_of(state), None) == (state_of(Gone(POSITION)),)


def test_a_table_that_stays_away_is_reported_once() -> None:
    assert judged(state_of(Gone("0/10")), None) == ()


def test_a_table_that_went_before_it_was_copied_is_new_when_it_comes() -> None:
    assert judged(state_of(Copying()), None) == (state_of(Removed(POSITION)),)


def test_the_same_table_that_comes_back_lost_nothing() -> None:
    assert judged(state_of(Gone("0/10")), table()) == (state_of(Streaming()),)


def test_another_table_in_place_of_one_that_went_lost_something() -> None:
    found = judged(state_of(Gone("0/10")), table("another"))
    assert found == (state_of(ResyncRequired(POSITION, OTHER)),)


def test_only_a_new_process_tries_a_held_table_again() -> None:
    paused = state_of(Paused("0/10", Cause(None, "a value does not fit")))
    assert judged(paused, table()) == ()
    assert judged(paused, table(), retries_paused=True) == (state_of(Streaming()),)


def test_only_a_new_process_tries_a_failed_copy_again() -> None:
    failed = state_of(Copying(Cause(None, "a value does not fit")))
    assert judged(failed, table()) == ()
    assert judged(failed, table(), retries_paused=True) == (state_of(Copying()),)


OBSTACLE = PermissionError("not ours.", next_step="alter publication …;")
BLOCKED = replace(table(), obstacle=OBSTACLE)
WAITS = state_of(Copying(Cause.of(OBSTACLE)), "")


@pytest.mark.fault("N40")
@pytest.mark.parametrize("before", [None, state_of(Removed("0/10"))], ids=str)
def test_a_table_that_cannot_be_copied_waits_and_says_why(before: TableState | None) -> None:
    assert judged(before, BLOCKED) == (WAITS,)
    assert judged(WAITS, BLOCKED) == ()
    assert judged(WAITS, BLOCKED, retries_paused=True) == ()


@pytest.mark.fault("N40")
def test_a_table_is_copied_as_soon_as_it_can_be() -> None:
    assert judged(WAITS, table()) == (state_of(Copying()),)


FAILED = Copying(Cause(None, "failed"))


@pytest.mark.fault("N40", "N43")
@pytest.mark.parametrize("before", [Copying(), FAILED], ids=str)
def test_a_table_to_be_read_again_keeps_its_identity_behind_an_obstacle(before: object) -> None:
    """By it, its name in the lake stays its own: a newcomer has none."""
    waits = state_of(Copying(Cause.of(OBSTACLE)))
    assert judged(state_of(before), BLOCKED) == (waits,)
    for met in (None, Cause.of(OBSTACLE)):
        assert judged(waits, BLOCKED, obstacle_met=met) == ()
        assert judged(waits, BLOCKED, obstacle_met=met, retries_paused=True) == ()
    # It goes on by itself, and what went wrong in a copy does not.
    assert judged(waits, table(), obstacle_met=Cause.of(OBSTACLE)) == (state_of(Copying()),)
    assert judged(waits, table(), retries_paused=True) == (state_of(Copying()),)
    assert judged(state_of(FAILED), table(), obstacle_met=Cause.of(OBSTACLE)) == ()
    assert judged(state_of(Copying()), table(), obstacle_met=Cause.of(OBSTACLE)) == ()


@pytest.mark.fault("N40")
def test_a_missing_table_that_is_to_be_read_again_keeps_its_identity() -> None:
    missing = replace(BLOCKED, identity="")
    assert judged(state_of(Copying()), missing) == (state_of(Copying(Cause.of(OBSTACLE))),)


def test_a_failed_copy_waits_until_an_operator_acts() -> None:
    failed = state_of(Copying(Cause(None, "why")))
    assert judged(failed, table()) == ()
    assert judged(failed, table(), retries_paused=True) == (state_of(Copying()),)


@pytest.mark.fault("N40")
def test_a_table_that_is_captured_goes_on_without_the_right_to_copy_it() -> None:
    assert judged(state_of(Streaming()), BLOCKED) == ()


def test_what_sends_no_changes_is_not_the_table_that_had_its_name() -> None:
    silent = replace(BLOCKED, identity="")
    assert judged(state_of(Streaming()), silent) == (state_of(Gone(POSITION)),)
    assert judged(None, silent) == (WAITS,)


def test_a_paused_table_is_left_alone_unless_an_operator_may_have_acted() -> None:
    paused = state_of(Paused(POSITION, Cause("FRZ-SCH-01", "it cannot be followed.")))
    found = {NAME: table()}
    changed = judge_tables(
        {NAME: paused},
        found,
        selects=lambda _: True,
        explain_identity_change=explain_identity_change,
        position=POSITION,
    )
    assert changed == ()


ACKNOWLEDGED = Marker(pipeline="p", source="s", position=POSITION, batch="b", epoch=1)


def states(**by_name: object) -> dict[str, TableState]:
    return {name: replace(state_of(state), table=name) for name, state in by_name.items()}


def test_a_source_keeps_what_tables_need_that_are_not_removed() -> None:
    needs = plan_needs(states(a=Streaming(), b=Copying(), c=Removed(POSITION)), ACKNOWLEDGED)
    assert (needs.tables, needs.since) == (("a", "b"), ACKNOWLEDGED)


def test_a_source_may_begin_anywhere_if_every_table_is_to_be_copied_and_no_copy_runs() -> None:
    known = states(a=Copying(), b=Removed(POSITION))
    assert plan_needs(known, ACKNOWLEDGED).since is None
    assert plan_needs(known, ACKNOWLEDGED, is_copying=True).since == ACKNOWLEDGED


def test_after_a_loss_every_table_is_copied_and_the_source_may_begin_anywhere() -> None:
    paused = Paused(POSITION, Cause(None, "why"))
    needs = plan_needs(
        states(a=Streaming(), b=paused, c=Removed(POSITION)), ACKNOWLEDGED
    ).after_loss()
    assert (needs.tables, needs.since) == (("a", "b"), None)
    assert needs.table_states == states(a=Copying(), b=Copying(), c=Removed(POSITION))
