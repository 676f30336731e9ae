"""When the source may forget what a batch brought: not before every table has what it needs."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from frazil.errors import PositionLostError, SlotBusyError
from frazil.ingest.ingester import Ingester
from frazil.ingest.ledger_cache import LedgerCache
from frazil.ingest.settings import IngestSettings
from frazil.ledger.table_state import Copying, Paused, ResyncRequired, Streaming, TableState
from frazil.model.marker import Marker, SnapshotRef
from frazil.model.source_table import SourceTable
from frazil.sources.protocol import Batch, Limit

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from frazil.sources.protocol import Progress

NAME, OTHER = "public.users", "public.orders"
BEGAN, LATER = "0/10", "0/20"


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
    ) -> Any:
        assert start == self.marker.position
        self.marker = goal
        return self._committed(table_states)

    def note(
        self, _entries: object, *, pipeline: str, batch: str, table_states: Sequence[TableState]
    ) -> Any:
        del pipeline, batch
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

    def discover(self) -> tuple[SourceTable, ...]:
        return tuple(
            SourceTable(name=each, identity="i", shape="", columns=()) for each in self.tables
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

    def plan(self, _progress: Progress, _limit: Limit) -> Batch:
        self.while_planning()
        none: Any = None
        return Batch(reader=none, splits=(), parts=(), end=LATER)

    def plan_copy(self, tables: Collection[str]) -> None:
        if tables:
            self.while_reading()

    def kept_since(self, position: object) -> int:
        return self.log.get(position, 0)

    def acknowledge(self, position: object) -> None:
        self.acknowledged.append(position)

    def close(self) -> None:
        """Nothing is kept."""


def ingester_of(source: Source, ledger: Ledger, *, held_bytes: int = 1 << 40) -> Ingester:
    none: Any = None
    some: Any = source
    settings = IngestSettings(pipeline="p", limit=Limit(1, 1), held_bytes=held_bytes)
    kept: Any = ledger
    ingester = Ingester(none, none, some, kept, settings=settings, captures=none)
    # What a live table says of itself is read from the lake, and there is none.
    ingester._progress = lambda: SimpleNamespace(tables={})  # type: ignore[method-assign,assignment,return-value]
    ingester._reached = lambda table_states: []  # type: ignore[method-assign] # noqa: ARG005
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
    ledger.known[OTHER] = state_of(OTHER, Paused("0/1", "FRZ-SCH-01 it cannot be followed."))
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


@pytest.mark.parametrize("state", [Paused("0/1", "FRZ-SCH-01 it cannot be followed."), Streaming()])
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

    assert ingester.tables_to_read == {NAME}
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
    paused = Paused("0/1", "FRZ-SCH-01 it cannot be followed.")
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
