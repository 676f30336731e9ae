"""Postgres as a kind of source."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from frazil.clients.postgres.lock_claim import LockClaim
from frazil.config.models.postgres_source import OnSlotLost, PostgresSection
from frazil.errors import FrazilError
from frazil.sources.kind import CapturePolicy, SourceKind
from frazil.sources.postgres.artifacts import open_teardown
from frazil.sources.postgres.checks.source_check import (
    check_readiness,
    check_source,
    spool_problem,
)
from frazil.sources.postgres.health import PostgresHealth
from frazil.sources.postgres.preflight_settings import PreflightSettings
from frazil.sources.postgres.preparation import PostgresPlanFacts, load_snapshot
from frazil.sources.postgres.row_source import PostgresRows
from frazil.sources.postgres.settings import postgres_settings
from frazil.sources.postgres.source import PostgresSource

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from frazil.config import Config
    from frazil.hooks import Clock
    from frazil.model.marker import Position
    from frazil.sources.findings import Findings
    from frazil.sources.kind import TableSettingsOf
    from frazil.sources.postgres.artifacts import PostgresTeardown

_LSN = re.compile(r"[0-9A-F]{1,8}/[0-9A-F]{1,8}")


class PostgresKind(SourceKind):
    """One database, one publication, one slot."""

    name = "postgres"

    def __init__(self, config: Config, tables: TableSettingsOf) -> None:
        super().__init__(config, tables)
        if not isinstance(config.source, PostgresSection):
            raise TypeError(config.source)
        self._section = config.source
        self.settings = postgres_settings(config, config.source, tables)

    def validate(self) -> None:
        """Its section was validated when the configuration was loaded."""

    @property
    def policy(self) -> CapturePolicy:
        """What the section says."""
        section = self._section
        return CapturePolicy(
            held_bytes=section.on_stopped_table.most_bytes,
            resyncs_lost=section.on_slot_lost is OnSlotLost.RESYNC,
            on_widen=section.on_widen,
            quiet=section.heartbeat,
        )

    def open(
        self, *, clock: Clock | None = None, is_stopping: Callable[[], bool] = lambda: False
    ) -> PostgresSource:
        """The publication, the slot and the tables."""
        return PostgresSource(self.settings, clock=clock, is_stopping=is_stopping)

    def claim(self) -> LockClaim:
        """A lock at the server, by the slot's name."""
        return LockClaim(self.settings.dsn, f"slot {self.settings.slot}")

    def watch(self) -> PostgresHealth:
        """The slot and the end of the server's log."""
        stops = self._section.on_slot_lost is OnSlotLost.STOP
        return PostgresHealth(self.settings, stops_lost=stops)

    def position_problem(self, position: Position) -> str | None:
        """A position is an LSN."""
        if isinstance(position, str) and _LSN.fullmatch(position):
            return None
        return "a position in Postgres is an LSN such as 0/1A2B3C4D"

    def check_readiness(self) -> Findings:
        """The server, the role and the publication."""
        return check_readiness(self.settings, self._wanted())

    def check(self) -> Findings:
        """The server, the slot, the publication and the tables."""
        found = check_source(self.settings, self._wanted(), self._key_of)
        unshared = spool_problem(self._section.spool.dir, self.config.spark.master)
        return found if unshared is None else replace(found, problems=(*found.problems, unshared))

    def load_plan_facts(self) -> PostgresPlanFacts:
        """The catalog, the publication and the slot, in a session that cannot write."""
        return PostgresPlanFacts(self.settings, load_snapshot(self.settings))

    def rows(self) -> PostgresRows:
        """Rows in a snapshot, also by key."""
        return PostgresRows(self.settings)

    def open_teardown(self) -> AbstractContextManager[PostgresTeardown]:
        """The slot, those of copies, and the publication."""
        return open_teardown(self.settings)

    def _wanted(self) -> PreflightSettings:
        return PreflightSettings(
            slot=self.settings.slot,
            publication=self.settings.publication,
            creates_publication=self.settings.creates_publication,
            held_wal_bytes=self._section.on_stopped_table.hold,
        )

    def _key_of(self, table: str) -> tuple[str, ...]:
        try:
            return self.tables(table).key
        except FrazilError:
            # The reason is reported with the names of its tables.
            return ()
