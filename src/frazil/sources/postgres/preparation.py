"""What a run finds, and would do, at a server before it captures anything; nothing is changed.

The tables that the configuration chooses, as the catalog shows them, and the plan of a run.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from frazil.clients.postgres.catalog_facts import (
    load_position,
    load_publication,
    load_server,
    load_slot,
)
from frazil.clients.postgres.connecting import connect
from frazil.clients.postgres.replication import SystemIdentity
from frazil.errors import FrazilError, SlotBusyError
from frazil.model import humanize
from frazil.model.postgres.lsn import parse_lsn
from frazil.model.source_table import SourceTable
from frazil.sources.plan_facts import PlannedTable, SourcePreparation, WaitingChanges
from frazil.sources.postgres.checks.obstacles import find_missing, find_obstacle
from frazil.sources.postgres.checks.server_checks import is_usable
from frazil.sources.postgres.publication.changing import plan_publication, refuse_unfit
from frazil.sources.postgres.settings import table_options
from frazil.sources.postgres.slot.continuity import SlotStep, plan_slot
from frazil.sources.postgres.stream.pending_changes import load_pending
from frazil.sources.postgres.tables.catalog_views import load_all_views, load_names
from frazil.sources.postgres.tables.description import describe_table
from frazil.sources.postgres.tables.identity import identity_differences, identity_of
from frazil.sources.postgres.tables.selection import can_be_published, is_meant

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from frazil.clients.postgres.session import Session
    from frazil.config import TableSettings
    from frazil.model.marker import Marker, Position
    from frazil.model.postgres.facts import PublicationFacts, ServerFacts, SlotFacts
    from frazil.sources.postgres.settings import PostgresSettings
    from frazil.sources.postgres.tables.catalog_view import CatalogView
    from frazil.sources.protocol import TableProgress

# The server decodes this much of its log in seconds; more is not read.
MOST_PENDING_BYTES = 256 * 2**20


def discover_tables(session: Session, settings: PostgresSettings) -> tuple[SourceTable, ...]:
    """Every table that is meant, also one that cannot be captured now, with its obstacle."""
    views, missing = _load_chosen(session, settings)
    absent = (
        SourceTable(name=name, identity="", shape="", columns=(), obstacle=error)
        for name, error in missing.items()
    )
    return (*(_described(view, settings) for view in views.values()), *absent)


def _load_chosen(
    session: Session, settings: PostgresSettings
) -> tuple[Mapping[str, CatalogView], Mapping[str, FrazilError]]:
    """The tables that the patterns choose, and those that are named and not there."""
    views = load_all_views(
        session,
        publication=settings.publication,
        include=settings.include,
        exclude=settings.exclude,
    )
    return views, find_missing(settings, views, lambda: load_names(session))


def _described(view: CatalogView, settings: PostgresSettings) -> SourceTable:
    obstacle = find_obstacle(view, creates_publication=settings.creates_publication)
    try:
        options = settings.options(view.name)
    except FrazilError as error:
        # Another table has its name in the lake.
        options, obstacle = None, obstacle or error
    # Without one, it is gone for a changelog that captured it under this name.
    key = () if options is None else options.key
    identity = identity_of(view, key) if can_be_published(view.table) else ""
    known = SourceTable(name=view.name, identity=identity, shape="", columns=(), obstacle=obstacle)
    if options is None or not identity:
        return known
    try:
        described = describe_table(view, options).table
    except Exception:  # noqa: BLE001 - a defect is reported for its own table
        # The reason is raised when it is read; until then it is only a name.
        return known
    return replace(described, obstacle=obstacle)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSnapshot:
    """A server, what is there under the pipeline's names, and the tables that are meant.

    ``position`` is how far its log is. ``pending`` has the tables by number with changes that the
    slot keeps, each with the last one's position; None if that is unknown.
    ``obstacles`` has the tables that cannot be captured now, and why.
    """

    server: ServerFacts
    slot: SlotFacts | None
    publication: PublicationFacts | None
    views: Mapping[str, CatalogView] = field(repr=False)
    position: int
    pending: Mapping[int, int] | None
    obstacles: Mapping[str, FrazilError] = field(default_factory=dict)

    @property
    def kept_bytes(self) -> int | None:
        """How much log the slot keeps unread; None without one that can be read."""
        if self.slot is None or self.slot.confirmed_flush is None:
            return None
        return max(0, self.position - self.slot.confirmed_flush)


def load_snapshot(settings: PostgresSettings) -> ServerSnapshot:
    """Read the server in a session that cannot write."""
    with connect(settings.dsn, purpose="plan") as session:
        with session.one_view():
            server = load_server(session)
            slot = load_slot(session, settings.slot)
            publication = load_publication(session, settings.publication)
            views, missing = _load_chosen(session, settings)
        position = load_position(session)
        pending = None
        if slot is not None and publication is not None and is_usable(slot, server):
            pending = _load_pending(session, slot, publication.name, position)
    return ServerSnapshot(
        server=server,
        slot=slot,
        publication=publication,
        views={name: view for name, view in views.items() if can_be_published(view.table)},
        position=position,
        pending=pending,
        obstacles={**_obstacles(views, settings), **missing},
    )


def _obstacles(
    views: Mapping[str, CatalogView], settings: PostgresSettings
) -> dict[str, FrazilError]:
    found = {
        name: find_obstacle(view, creates_publication=settings.creates_publication)
        for name, view in views.items()
    }
    return {name: error for name, error in found.items() if error is not None}


def _load_pending(
    session: Session, slot: SlotFacts, publication: str, position: int
) -> Mapping[int, int] | None:
    begin = slot.confirmed_flush
    if begin is None or slot.is_active or position - begin > MOST_PENDING_BYTES:
        return None
    try:
        return load_pending(session, slot=slot.name, publication=publication, until=position)
    except SlotBusyError:
        return None


def plan_preparation(
    facts: ServerSnapshot,
    settings: PostgresSettings,
    tables: Collection[str],
    since: Marker | None,
) -> SourcePreparation:
    """What ``PostgresSource.prepare`` would do for these tables; pure."""
    publication = facts.publication
    wanted = [view.table for name, view in facts.views.items() if name in tables]
    try:
        step = plan_slot(
            settings,
            since,
            # Where the tables are, and where timelines parted, a run checks.
            reached=0,
            server=_identity(facts),
            switches=(),
            publication=publication,
            slot=facts.slot,
        )
        refuse_unfit(publication)
        plan = plan_publication(
            publication,
            wanted,
            facts.server,
            name=settings.publication,
            creates=settings.creates_publication,
        )
    except FrazilError as error:
        return describe_preparation(settings, kept_bytes=facts.kept_bytes, problem=error)
    return describe_preparation(
        settings,
        statements=plan.statements,
        creates_slot=step is not SlotStep.KEEP,
        kept_bytes=facts.kept_bytes,
    )


def describe_preparation(
    settings: PostgresSettings,
    *,
    statements: tuple[str, ...] = (),
    creates_slot: bool = False,
    kept_bytes: int | None = None,
    problem: FrazilError | None = None,
) -> SourcePreparation:
    """The SQL of the publication, and the slot; ``kept_bytes`` is the log that it keeps unread."""
    slot, publication = settings.slot, settings.publication
    lines = [("publication", statement) for statement in statements]
    lines = lines or [("publication", f"{publication} stays as it is")]
    kept = "" if kept_bytes is None else f" and keeps {humanize.size(kept_bytes)} of log unread"
    lines.append(("slot", f"{slot} is made" if creates_slot else f"{slot} is there{kept}"))
    return SourcePreparation(
        lines=tuple(lines),
        document={
            "publication": publication,
            "statements": list(statements),
            "slot": slot,
            "creates_slot": creates_slot,
            "kept_bytes": kept_bytes,
        },
        has_work=bool(statements) or creates_slot,
        problem=problem,
    )


def _identity(facts: ServerSnapshot) -> SystemIdentity:
    return SystemIdentity(
        system_identifier=facts.server.system_identifier,
        timeline=facts.server.timeline,
        log_end=facts.position,
        database=facts.server.database,
        is_standby=facts.server.is_standby,
    )


class PostgresPlanFacts:
    """The catalog, the publication and the slot at one moment."""

    def __init__(self, settings: PostgresSettings, snapshot: ServerSnapshot) -> None:
        self._settings = settings
        self._snapshot = snapshot

    @cached_property
    def tables(self) -> Mapping[str, SourceTable]:
        """Names and identities; a table that sends no changes has none."""
        found = {
            name: SourceTable(
                name=name, identity=identity_of(view, self._key_of(name)), shape="", columns=()
            )
            for name, view in self._snapshot.views.items()
        }
        for name, obstacle in self._snapshot.obstacles.items():
            table = found.get(name) or SourceTable(name=name, identity="", shape="", columns=())
            found[name] = replace(table, obstacle=obstacle)
        return found

    def selects(self, table: str) -> bool:
        """Whether the patterns choose this name."""
        return is_meant(table, include=self._settings.include, exclude=self._settings.exclude)

    def explain_identity_change(
        self, before: str, now: str, *, was_gone: bool = False
    ) -> tuple[str, ...]:
        """What the server never announces."""
        return identity_differences(before, now, was_gone=was_gone)

    def plan_preparation(self, tables: Collection[str], since: Marker | None) -> SourcePreparation:
        """The publication and the slot."""
        return plan_preparation(self._snapshot, self._settings, tables, since)

    def describe(self, table: str, settings: TableSettings, shape: str) -> PlannedTable:  # noqa: ARG002 - the catalog says it
        """The table as the catalog shows it."""
        view = self._snapshot.views[table]
        described = describe_table(view, table_options(settings))
        return PlannedTable(
            table=described.table,
            no_key=str(described.no_key),
            estimated_rows=view.table.estimated_rows,
        )

    def load_waiting(
        self,
        table: str,
        at: TableProgress,
        acknowledged: Position | None,  # noqa: ARG002 - the slot keeps what was not acknowledged
    ) -> WaitingChanges:
        """By what the slot keeps; a table skips a transaction that is before its marker."""
        pending = self._snapshot.pending
        if pending is None:
            return WaitingChanges(has_any=None)
        newest = pending.get(self._snapshot.views[table].table.oid, -1)
        after = 0 if at.position is None else parse_lsn(str(at.position))
        return WaitingChanges(has_any=newest >= after)

    def _key_of(self, table: str) -> tuple[str, ...]:
        try:
            return self._settings.options(table).key
        except FrazilError:
            # Reported with the table itself.
            return ()
