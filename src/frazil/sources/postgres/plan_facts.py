"""The plan of a run, as a Postgres server shows it."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from frazil.errors import FrazilError
from frazil.model.postgres.lsn import parse_lsn
from frazil.model.source_table import SourceTable
from frazil.sources.plan_facts import PlannedTable
from frazil.sources.postgres.preparation import plan_preparation
from frazil.sources.postgres.settings import table_options
from frazil.sources.postgres.tables.description import describe_table
from frazil.sources.postgres.tables.identity import identity_differences, identity_of
from frazil.sources.postgres.tables.selection import is_meant

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from frazil.config import TableSettings
    from frazil.model.marker import Marker, Position
    from frazil.sources.plan_facts import SourcePreparation
    from frazil.sources.postgres.preparation import ServerSnapshot
    from frazil.sources.postgres.settings import PostgresSettings


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

    def describe(self, table: str, settings: TableSettings) -> PlannedTable:
        """The table as the catalog shows it."""
        view = self._snapshot.views[table]
        described = describe_table(view, table_options(settings))
        return PlannedTable(
            table=described.table,
            no_key=str(described.no_key),
            estimated_rows=view.table.estimated_rows,
        )

    def has_changes(self, table: str, after: Position | None) -> bool | None:
        """By what the slot keeps; a table skips a transaction that is before its marker."""
        pending = self._snapshot.pending
        if pending is None:
            return None
        newest = pending.get(self._snapshot.views[table].table.oid, -1)
        return newest >= (0 if after is None else parse_lsn(str(after)))

    def _key_of(self, table: str) -> tuple[str, ...]:
        try:
            return self._settings.options(table).key
        except FrazilError:
            # Reported with the table itself.
            return ()
