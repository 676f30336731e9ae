"""When the source may forget what a batch brought: not before every table has what it needs."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from frazil.errors import (
    FencedError,
    MarkerLostError,
    PermissionError,  # noqa: A004
    PositionLostError,
    SlotBusyError,
    SourceUnavailableError,
    StorageError,
    TableNotFoundError,
)
from frazil.ingest.batch_run import position_if_known
from frazil.ingest.captured_table import CapturedPosition
from frazil.ingest.ingester import Ingester
from frazil.ingest.ledger_cache import LedgerCache
from frazil.ingest.opened_tables import OpenedTables
from frazil.ingest.settings import IngestSettings
from frazil.ledger.table_state import Copying, Paused, ResyncRequired, Streaming, TableState
from frazil.model.cause import Cause
from frazil.model.marker import Marker, SnapshotRef
from frazil.model.source_table import SourceTable
from frazil.pipeline.recovery import may_pass
from frazil.sources.protocol import Batch, Limit, Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from frazil.errors import FrazilError

NAME, OTHER = "public.users", "public.orders"
BEGAN, LATER = "0/10", "0/20"
PAUSED = Paused("0/1", Cause("FRZ-SCH-01", "it cannot be followed."))


class Ledger:
    """What the ledger's table would say."""

    def __init__(self, *table_states: TableState) -> None:
        self.marker = Marker(pipeline="p", source="s", position=BEGAN, batch="b", epoch=1)
        self.known = {each.table: each for each in table_states}
        self.commits = 1

    @property
    def table(self) -> Any:
        head = SnapshotRef(id=self.commits, sequence=self.commits)
        return SimpleNamespace(load_state=lambda: SimpleNamespace(head=head))

    def acknowledged(self) -> Marker:
        return self.marker

    def table_states(self) -> list[TableState]:
        return list(self.known.values())

    def record(
        self,
        _entries: object,
        *,
        start: object,
        goal: Marker,
        table_states: Sequence[TableState],
        head: SnapshotRef | None = None,
        states_since: object = None,
    ) -> Any:
        assert states_since is None, "it is not shared"
        if head is not None and head.id != self.commits:
            raise FencedError("another process wrote.")
        assert start == self.marker.position
        self.marker = goal
        return self._committed(table_states)

    def note(
        self,
        _entries: object,
        *,
        pipeline: str,
        batch: str,
        table_states: Sequence[TableState],
        position: object = None,
        states_since: object = None,
    ) -> Any:
        del pipeline, batch
        assert states_since is None, "it is not shared"
        if position is not None and position != self.marker.position:
            raise FencedError("another process moved it.")
        return self._committed(table_states)

    def _committed(self, table_states: Sequence[TableState]) -> Any:
        self.commits += 1
        self.known |= {each.table: each for each in table_states}
        written = SnapshotRef(id=self.commits, sequence=self.commits)
        return SimpleNamespace(marker=replace(self.marker, snapshot=written))


class Source:
    """A source with batches that only move the position, and what happens while it plans."""

    identity, generation = "s", 1

    def __init__(self, *tables: str) -> None:
        self.tables = tables
        self.acknowledged: list[object] = []
        self.while_reading: Callable[[], object] = lambda: None
        self.prepares: Callable[[], object] = lambda: None
        self.while_planning: Callable[[], object] = lambda: None
        # How much log there is after a position.
        self.log: dict[object, int] = {}
        self.obstacles: dict[str, FrazilError] = {}
        self.streams = True

    def discover(self) -> tuple[SourceTable, ...]:
        met = self.obstacles.get
        return tuple(
            SourceTable(name=each, identity="i", shape="", columns=(), obstacle=met(each))
            for each in self.tables
        )

    def explain_identity_change(
        self, _before: str, _now: str, *, was_gone: bool
    ) -> tuple[str, ...]:
        assert not was_gone
        return ()

    def selects(self, _table: str) -> bool:
        return True

    def prepare(
        self, _tables: Collection[str], since: Marker | None, _reached: Collection[object]
    ) -> object:
        self.prepares()
        return BEGAN if since is None else since.position

    def plan(self, _progress: Progress, _limit: Limit) -> Batch | None:
        self.while_planning()
        if not self.streams:
            return None
        none: Any = None
        return Batch(reader=none, splits=(), parts=(), end=LATER)

    def plan_copy(self, tables: Collection[str]) -> None:
        if tables:
            self.while_reading()

    def newest(self) -> object:
        return LATER

    def kept_since(self, position: object) -> int:
        return self.log.get(position, 0)

    def acknowledge(self, position: object) -> None:
        self.acknowledged.append(position)

    def close(self) -> None:
        """Nothing is kept."""


def ingester_of(source: Source, ledger: Ledger, *, held_bytes: int = 1 << 40) -> Ingester:
    none: Any = None
    some: Any = source
    settings = IngestSettings(
        pipeline="p", limit=Limit(1, 1), held_bytes=held_bytes, may_pass=may_pass
    )
    kept: Any = ledger
    ingester = Ingester(none, none, some, kept, settings=settings, captures=none)
    # What a live table says of itself is read from the lake, and there is none.
    ingester._progress = lambda: Progress(acknowledged=ingester.acknowledged)  # type: ignore[method-assign]
    ingester._tables.load_reached = lambda table_states: []  # type: ignore[method-assign] # noqa: ARG005
    return ingester


def state_of(table: str, state: Any) -> TableState:
    return TableState(table=table, identity="i", state=state)


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


class Broken:
    """A captured table whose changelog answers with this."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def load_position(self) -> Any:
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
