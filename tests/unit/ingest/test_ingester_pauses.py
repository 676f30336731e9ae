"""When the source may forget what a batch brought: not before every table has what it needs."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from frazil.errors import (
    FencedError,
    PermissionError,  # noqa: A004
    PositionLostError,
    SlotBusyError,
    SourceUnavailableError,
    StorageError,
)
from frazil.ingest.ledger_cache import LedgerCache
from frazil.ledger.table_state import Copying, Paused, ResyncRequired, Streaming
from frazil.model.cause import Cause
from frazil.model.marker import Marker
from tests.support.ingest.paused_tables import (
    BEGAN,
    LATER,
    NAME,
    OTHER,
    PAUSED,
    Ledger,
    Source,
    ingester_of,
    state_of,
)


def test_without_anything_that_needs_more_the_source_is_acknowledged() -> None:
    source, ledger = Source(), Ledger()
    ingester_of(source, ledger).step()
    assert source.acknowledged == [LATER]
    assert ledger.marker.position == LATER


def test_while_a_table_is_read_the_source_keeps_what_came_since() -> None:
    source, ledger = Source(NAME, OTHER), Ledger(state_of(NAME, Copying()))
    # A table that is not copied keeps the source from beginning again.
    ledger.known[OTHER] = state_of(OTHER, PAUSED)
    ingester = ingester_of(source, ledger)
    ingester.start()
    # Paused tables hold the source too: here only the one that is read does.
    ledger.known.pop(OTHER)
    source.tables = (NAME,)

    def meanwhile() -> None:
        ingester._ledger._table_states.pop(OTHER, None)
        ingester.step()
        assert source.acknowledged == [BEGAN], "what the copy needs was given up"

    source.while_reading = meanwhile
    ingester.copy_tables()
    assert source.acknowledged == [BEGAN]
    # No one reads it any more: what is read later is read as of later.
    ingester.step()
    assert source.acknowledged == [BEGAN, LATER]


@pytest.mark.parametrize("state", [PAUSED, Streaming()])
def test_a_table_that_the_batch_left_out_keeps_the_source_from_moving(state: object) -> None:
    source, ledger = Source(NAME), Ledger(state_of(NAME, state))
    ingester = ingester_of(source, ledger)
    ingester._retries_paused = False
    ingester.step()
    assert source.acknowledged == [BEGAN]
    assert ledger.marker.position == BEGAN


@pytest.mark.fault("N56")
@pytest.mark.parametrize("moved", [True, False])
def test_a_loss_is_believed_only_if_the_ledger_read_afterwards_says_so(*, moved: bool) -> None:
    source, ledger = Source(NAME), Ledger(state_of(NAME, Streaming()))
    ingester = ingester_of(source, ledger)

    def prepare() -> None:
        if moved:
            ledger.marker = Marker(pipeline="p", source="s", position=LATER, batch="o", epoch=1)
            ledger.commits += 1
        raise PositionLostError("the slot is ahead")

    source.prepares = prepare
    with pytest.raises(SlotBusyError if moved else PositionLostError):
        ingester.start()


@pytest.mark.fault("N3")
def test_a_resync_requested_while_a_batch_is_written_is_applied() -> None:
    source, ledger = Source(NAME), Ledger(state_of(NAME, Streaming()))
    ingester = ingester_of(source, ledger)

    def request_resync() -> None:
        ledger.known[NAME] = state_of(NAME, Copying())
        ledger.commits += 1

    source.while_planning = request_resync
    ingester.step()

    assert ingester.tables_to_copy == {NAME}
    assert ledger.known[NAME].state == Copying()


def test_what_is_written_between_two_commits_of_ours_is_read() -> None:
    source, ledger = Source(NAME), Ledger(state_of(NAME, Streaming()))
    cache = LedgerCache(ledger, "p")  # type: ignore[arg-type]
    cache.refresh()
    ledger.known[NAME] = state_of(NAME, Copying())
    ledger.commits += 1
    cache.record([state_of(OTHER, Streaming())], batch="b")

    assert source.tables == (NAME,)
    assert cache.refresh()
    assert cache.table_states[NAME].state == Copying()
    assert not cache.refresh()


@pytest.mark.fault("N3")
@pytest.mark.parametrize("is_first", [True, False])
def test_states_that_could_not_be_read_are_read_again(
    monkeypatch: pytest.MonkeyPatch, *, is_first: bool
) -> None:
    """Otherwise every table is taken for a new one, or a resync is not seen."""
    ledger = Ledger(state_of(NAME, Streaming()))
    cache = LedgerCache(ledger, "p")  # type: ignore[arg-type]
    if not is_first:
        cache.refresh()
        ledger.commits += 1
    ledger.known[NAME] = state_of(NAME, Copying())

    def fail() -> None:
        raise StorageError("the store does not answer.")

    with monkeypatch.context() as patch:
        patch.setattr(ledger, "table_states", fail)
        with pytest.raises(StorageError):
            cache.refresh()
    assert cache.refresh()
    assert cache.table_states[NAME].state == Copying()


def test_states_are_read_by_one_thread_while_another_one_adds_some() -> None:
    cache = LedgerCache(Ledger(state_of(NAME, Copying())), "p")  # type: ignore[arg-type]
    cache.refresh()
    seen = iter(cache.table_states)
    cache.record([state_of(OTHER, Copying())], batch="b")
    assert list(seen) == [NAME]
    assert cache.table_states.keys() == {NAME, OTHER}


@pytest.mark.fault("N45")
@pytest.mark.parametrize(("unread", "is_forgotten"), [(900, False), (0, True)])
def test_an_unread_backlog_is_not_kept_for_a_paused_table(
    unread: int, *, is_forgotten: bool
) -> None:
    paused = PAUSED
    source, ledger = (
        Source(NAME, OTHER),
        Ledger(state_of(NAME, Streaming()), state_of(OTHER, Streaming())),
    )
    source.log = {BEGAN: 1000, LATER: unread}
    ingester = ingester_of(source, ledger, held_bytes=500)
    # A new process would try it again.
    ingester.start()
    ledger.known[NAME] = state_of(NAME, paused)
    ledger.commits += 1
    ingester.step()

    assert isinstance(ledger.known[NAME].state, ResyncRequired if is_forgotten else Paused)


@pytest.mark.fault("N40", "N43")
def test_a_resync_behind_an_obstacle_keeps_the_identity_and_goes_on_without_it() -> None:
    """A name in the lake belongs to the table that has an identity in the ledger."""
    source, ledger = Source(NAME, OTHER), Ledger(state_of(NAME, Copying()))
    ledger.known[OTHER] = state_of(OTHER, Streaming())
    source.obstacles[NAME] = PermissionError("select is revoked.", next_step="grant select")
    ingester = ingester_of(source, ledger)
    for _ in range(2):
        ingester.step()
        assert ledger.known[NAME] == state_of(NAME, Copying(Cause.of(source.obstacles[NAME])))
    source.obstacles.clear()
    # A server that was away in between changes nothing.
    ingester.stop()
    ingester.step()
    assert ledger.known[NAME] == state_of(NAME, Copying())


@pytest.mark.fault("N45")
@pytest.mark.parametrize(("kept", "is_forgotten"), [(501, True), (500, False)])
def test_the_log_is_bounded_too_where_every_table_is_paused(
    kept: int, *, is_forgotten: bool
) -> None:
    """No batch comes then; nothing else would tell how much is kept."""
    source, ledger = Source(NAME), Ledger(state_of(NAME, PAUSED))
    source.streams, source.log = False, {BEGAN: kept}
    ingester = ingester_of(source, ledger, held_bytes=500)
    ingester._retries_paused = False
    assert ingester.step() is None
    assert isinstance(ledger.known[NAME].state, ResyncRequired if is_forgotten else Paused)
    assert source.acknowledged == [LATER if is_forgotten else BEGAN]
    assert ledger.marker.position == (LATER if is_forgotten else BEGAN)
    # No table needs what follows either, and what was acknowledged is not repeated.
    source.log = {LATER: 0, BEGAN: 0}
    ingester.step()
    assert source.acknowledged == [LATER if is_forgotten else BEGAN]


@pytest.mark.fault("N45")
@pytest.mark.parametrize("dies", [True, False])
def test_an_acknowledgement_that_failed_is_repeated_until_the_source_has_it(*, dies: bool) -> None:
    """The ledger has moved by then, so that the bound alone would take as much log again."""
    source, ledger = Source(NAME), Ledger(state_of(NAME, PAUSED))
    source.streams, source.log = False, {BEGAN: 1000}
    tried: list[object] = []

    def acknowledge(position: object) -> None:
        tried.append(position)
        if len(tried) < 3:
            raise SourceUnavailableError("the slot cannot be advanced now.")

    source.acknowledge = acknowledge  # type: ignore[method-assign]
    ingester = ingester_of(source, ledger, held_bytes=500)
    ingester._retries_paused = False
    for _ in range(2):
        with pytest.raises(SourceUnavailableError):
            ingester.step()
        assert ledger.marker.position == LATER
        if dies:
            ingester = ingester_of(source, ledger, held_bytes=500)
    for _ in range(2):
        ingester.step()
    assert tried == [LATER, LATER, LATER]
    assert isinstance(ledger.known[NAME].state, ResyncRequired)


@pytest.mark.fault("N45")
def test_the_log_is_not_given_up_while_another_process_works() -> None:
    """It may have copied a table that needs this log, and only it knows."""
    source, ledger = Source(NAME), Ledger(state_of(NAME, PAUSED))
    source.streams, source.log = False, {BEGAN: 1000}
    turns: list[object] = []

    def turn() -> Any:
        turns.append(None)
        if len(turns) > 1:
            raise SlotBusyError("another process works.")
        return nullcontext()

    ingester = ingester_of(source, ledger, held_bytes=500)
    ingester._turn, ingester._retries_paused = turn, False
    with pytest.raises(SlotBusyError):
        ingester.step()
    assert (ledger.marker.position, source.acknowledged) == (BEGAN, [])
    assert ledger.known[NAME].state == PAUSED


@pytest.mark.fault("N45")
def test_the_log_is_not_given_up_when_another_process_wrote_meanwhile() -> None:
    source, ledger = Source(NAME), Ledger(state_of(NAME, PAUSED))
    source.streams, source.log = False, {BEGAN: 1000}
    ingester = ingester_of(source, ledger, held_bytes=500)
    ingester._retries_paused = False
    asked: list[object] = []

    def newest() -> object:
        # The second look is the last one before the ledger is written.
        asked.append(None)
        if len(asked) > 1:
            ledger.known[NAME] = state_of(NAME, Copying())
            ledger.commits += 1
        return LATER

    source.newest = newest  # type: ignore[method-assign]
    with pytest.raises(FencedError):
        ingester.step()
    assert (ledger.marker.position, source.acknowledged) == (BEGAN, [])
    assert ledger.known[NAME].state == Copying()


@pytest.mark.fault("N45")
def test_what_a_streaming_table_or_a_copy_needs_is_kept_though_nothing_is_streamed() -> None:
    source, ledger = Source(NAME, OTHER), Ledger(state_of(NAME, Streaming()))
    source.streams, source.log = False, {BEGAN: 1000}
    ingester = ingester_of(source, ledger, held_bytes=500)
    ingester.step()
    assert (ledger.marker.position, source.acknowledged) == (BEGAN, [])
    ledger.known |= {NAME: state_of(NAME, PAUSED), OTHER: state_of(OTHER, Copying())}
    ledger.commits += 1
    ingester._being_copied.add(OTHER)
    ingester.step()
    assert (ledger.marker.position, source.acknowledged) == (BEGAN, [])
