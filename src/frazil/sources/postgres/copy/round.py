"""The copy of tables in one snapshot, a few tables in each batch.

All splits of a copy read the same snapshot, which an idle connection keeps open.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

from frazil.clients.defects import defect_of_table
from frazil.clients.postgres.catalog_facts import load_leaves
from frazil.clients.postgres.connecting import connect
from frazil.clients.postgres.replication import SLOT_PATIENCE, connect_replication
from frazil.errors import FrazilError, SlotBusyError, SourceUnavailableError
from frazil.hooks import SystemClock
from frazil.model.postgres.lsn import format_lsn
from frazil.sources.postgres.checks.obstacles import find_obstacle
from frazil.sources.postgres.copy.planning import (
    CopyColumn,
    CopySplit,
    CopyTable,
    key_condition,
    plan_ranges,
)
from frazil.sources.postgres.copy.reader import CopyReader
from frazil.sources.postgres.tables.catalog_views import is_published, load_views
from frazil.sources.postgres.tables.description import describe_table
from frazil.sources.protocol import Batch, Restart, Split, TableFailure, TablePart

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from datetime import timedelta

    from frazil.clients.postgres.dsn import SecretText
    from frazil.clients.postgres.replication import (
        CreatedSlot,
        ReplicationConnection,
        SystemIdentity,
    )
    from frazil.hooks import Clock, Randomness
    from frazil.model.postgres.facts import Leaf
    from frazil.sources.postgres.settings import PostgresSettings
    from frazil.sources.postgres.tables.catalog_view import CatalogView
    from frazil.sources.postgres.tables.description import TableDescription

_CLOCK = SystemClock()
# A server sees the end of a connection within milliseconds.
_TAKEN_SECONDS = 0.05
# Postgres cuts names at 63 bytes.
_LONGEST_NAME = 63
_TOKEN_BYTES = 4

# Some seconds of reading: enough to be worth a connection, little enough to be shared fairly.
SPLIT_BYTES = 32 * 2**20
# A large table has larger splits, because each makes a file.
MOST_SPLITS = 1024
# Small tables share a batch, because a batch costs a commit or two; a large one has its own.
BATCH_BYTES = 512 * 2**20


def copy_slot_name(slot: str, randomness: Randomness) -> str:
    """What the slot of a copy is called, after the pipeline's own."""
    suffix = f"_copy_{randomness.token(_TOKEN_BYTES).hex()}"
    return slot[: _LONGEST_NAME - len(suffix)] + suffix


@dataclass(frozen=True, slots=True)
class CopySnapshot:
    """A snapshot that can be adopted until this is closed, or its connection breaks.

    A copy counts only if this is still alive once the last row was read: a server that started
    again in between may have given the snapshot's name away.
    """

    connection: ReplicationConnection
    identity: SystemIdentity
    """The server that it is a state of."""
    consistent_point: int
    """Transactions whose commit is before this are in the snapshot, and no others."""
    snapshot: str
    """The name under which other sessions adopt it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def is_alive(self) -> bool:
        """Whether the connection is open, as far as is known here; nothing is sent."""
        return self.connection.is_alive()

    def close(self) -> None:
        """Let go of the snapshot; a second time does nothing."""
        self.connection.close()


def open_copy_snapshot(
    dsn: SecretText,
    *,
    slot: str,
    clock: Clock = _CLOCK,
    slot_patience: timedelta = SLOT_PATIENCE,
    is_stopping: Callable[[], bool] = lambda: False,
) -> CopySnapshot:
    """Take a snapshot with a temporary slot of this name, which lives as long as the snapshot.

    Waits for the transactions that are open now; SourceUnavailableError when one of them stays
    open for longer than the patience. Waits as long for another slot of the name, which may be
    one that was just let go; SlotBusyError when it stays. ShutdownRequested when the end is wished.
    """
    connection = connect_replication(
        dsn,
        purpose="copy snapshot",
        slot_patience=slot_patience,
        clock=clock,
        is_stopping=is_stopping,
    )
    try:
        identity = connection.identify()
        created = _create(connection, slot, clock=clock, patience=slot_patience)
    except BaseException:
        connection.close()
        raise
    return CopySnapshot(connection, identity, created.consistent_point, created.snapshot)


def _create(
    connection: ReplicationConnection, slot: str, *, clock: Clock, patience: timedelta
) -> CreatedSlot:
    deadline = clock.monotonic() + patience.total_seconds()
    while True:
        try:
            return connection.create_slot(slot, temporary=True)
        except SlotBusyError:
            if clock.monotonic() >= deadline:
                raise
        clock.sleep(_TAKEN_SECONDS)


@dataclass(frozen=True, slots=True)
class _Table:
    """A table as the snapshot shows it, and where its rows are."""

    description: TableDescription
    view: CatalogView
    leaves: tuple[Leaf, ...]

    @property
    def size(self) -> int:
        return sum(each.pages for each in self.leaves) * self.view.server.block_bytes


class CopyRound:
    """A snapshot, and the tables that are to be read in it; lives on the driver."""

    def __init__(
        self,
        settings: PostgresSettings,
        *,
        slot: str,
        clock: Clock,
        refused: Mapping[str, FrazilError] = MappingProxyType({}),
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        """``refused`` are the tables that the server did not let into the publication."""
        self._settings = settings
        self._refused = refused
        self._snapshot = open_copy_snapshot(
            settings.dsn, slot=slot, clock=clock, is_stopping=is_stopping
        )
        self._tables: dict[str, _Table] = {}
        self._failures: dict[str, FrazilError] = {}
        try:
            self._load()
        except BaseException:
            self._snapshot.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def position(self) -> int:
        """Transactions whose commit is before this are in the snapshot, and no others."""
        return self._snapshot.consistent_point

    @property
    def server(self) -> SystemIdentity:
        """The server that is read."""
        return self._snapshot.identity

    def covers(self, tables: Collection[str]) -> bool:
        """Whether the snapshot is still open and all of these tables were checked in it."""
        known = self._tables.keys() | self._failures.keys()
        return set(tables) <= known and self._snapshot.is_alive()

    def next_batch(self, wanted: Collection[str]) -> Batch | None:
        """Some of these tables, small ones together; None when it knows none of them."""
        failures = tuple(
            TableFailure(name, error) for name, error in self._failures.items() if name in wanted
        )
        chosen = self._choose(wanted)
        if not chosen and not failures:
            return None
        parts = [self._copy_table(name, self._tables[name]) for name in chosen]
        return Batch(
            reader=CopyReader(self._settings.dsn, self._snapshot.snapshot, tuple(parts)),
            splits=tuple(split for name in chosen for split in _splits(self._tables[name])),
            parts=tuple(self._part(self._tables[name]) for name in chosen),
            end=None,
            failures=failures,
            most_tasks=self._settings.copy_connections,
            check=self._check,
        )

    def batch_of(self, name: str, keys: Sequence[Sequence[str]] = ()) -> Batch:
        """One table, or its rows with these keys only; raises what keeps it from being read."""
        if name in self._failures:
            raise self._failures[name]
        if name not in self._tables:
            message = "the table is not at the source, or source.tables does not choose it."
            raise SourceUnavailableError(message, table=name, next_step="frazil check")
        table = self._tables[name]
        part, rows = self._part(table), self._copy_table(name, table)
        splits = tuple(_splits(table))
        if keys:
            names = {each.number: each.name for each in rows.columns}
            wanted = key_condition([names[number] for number in rows.key], keys)
            only = wanted if rows.row_filter is None else f"({rows.row_filter}) and {wanted}"
            rows = replace(rows, row_filter=only)
            splits = tuple(
                Split(CopySplit(name, leaf.name, None, None), 1) for leaf in table.leaves
            )
        return Batch(
            reader=CopyReader(self._settings.dsn, self._snapshot.snapshot, (rows,)),
            splits=splits,
            parts=(part,),
            end=None,
            most_tasks=self._settings.copy_connections,
            check=self._check,
        )

    def close(self) -> None:
        """Let go of the snapshot."""
        self._snapshot.close()

    def _load(self) -> None:
        settings = self._settings
        with (
            connect(settings.dsn, purpose="copy") as session,
            session.one_view(snapshot=self._snapshot.snapshot),
        ):
            views = load_views(
                session,
                publication=settings.publication,
                include=settings.include,
                exclude=settings.exclude,
            )
            blocks = next((view.server.block_bytes for view in views.values()), 1)
            leaves = load_leaves(
                session, [view.table.oid for view in views.values()], block_bytes=blocks
            )
        for name, view in views.items():
            self._take(name, view, leaves[view.table.oid])

    def _take(self, name: str, view: CatalogView, leaves: tuple[Leaf, ...]) -> None:
        try:
            self._require_published(name, view)
            description = describe_table(view, self._settings.options(name))
        except FrazilError as error:
            self._failures[name] = error
        except Exception as error:  # noqa: BLE001 - a defect stops its own table only
            self._failures[name] = defect_of_table(error, name, "describing it")
        else:
            self._tables[name] = _Table(description, view, leaves)

    def _require_published(self, name: str, view: CatalogView) -> None:
        """Raise why the stream would not go on with what is read here."""
        creates = self._settings.creates_publication
        obstacle = find_obstacle(view, creates_publication=creates)
        if obstacle is not None:
            raise obstacle
        if not is_published(view):
            message = f"the publication {self._settings.publication} does not have the table."
            unexpected = SourceUnavailableError(message, table=name, next_step="frazil check")
            raise self._refused.get(name, unexpected)

    def _choose(self, wanted: Collection[str]) -> list[str]:
        known = [name for name in wanted if name in self._tables]
        chosen: list[str] = []
        total = 0
        for name in sorted(known, key=lambda each: (self._tables[each].size, each)):
            total += self._tables[name].size
            if chosen and total > BATCH_BYTES:
                break
            chosen.append(name)
        return chosen

    def _copy_table(self, name: str, table: _Table) -> CopyTable:
        described = table.description
        return CopyTable(
            name=name,
            columns=tuple(
                CopyColumn(each.number, each.name, described.plans[each.number])
                for each in described.table.columns
            ),
            key=described.table.key,
            row_filter=table.view.published.row_filter,
            position=self._restart.position,
            origin=self._restart.origin,
        )

    def _part(self, table: _Table) -> TablePart:
        goal = format_lsn(self._snapshot.consistent_point)
        return TablePart(
            table=table.description.table, start=None, goal=goal, restart=self._restart
        )

    @property
    def _restart(self) -> Restart:
        # Before the first transaction that is not in the snapshot, which may start exactly there.
        point = self._snapshot.consistent_point
        return Restart(position=point - 1, origin=format_lsn(point))

    def _check(self) -> None:
        if not self._snapshot.is_alive():
            raise SourceUnavailableError(
                "the connection that kept the copy's snapshot is gone; the copy starts again."
            )


def _splits(table: _Table) -> Iterator[Split]:
    block = table.view.server.block_bytes
    name = str(table.view.table.name)
    for leaf in table.leaves:
        size = max(SPLIT_BYTES, leaf.pages * block // MOST_SPLITS)
        ranges = plan_ranges(leaf.pages, target_pages=max(1, size // block))
        weight = max(1, leaf.pages * block // len(ranges))
        for pages in ranges:
            yield Split(CopySplit(name, leaf.name, pages.first, pages.past), weight)
