"""A ledger and a source that say what a test needs, and the ingester between them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from frazil.errors import (
    FencedError,
)
from frazil.ingest.ingester import Ingester
from frazil.ingest.settings import IngestSettings
from frazil.ledger.table_state import Paused, TableState
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

    def only_upkeep_since(self, since: SnapshotRef, _until: SnapshotRef | None = None) -> bool:
        """Everything that is written here is of another process, or of ours."""
        return since.id == self.commits

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
