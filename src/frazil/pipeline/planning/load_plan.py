"""The plan of the next run, from what the source, the ledger and the tables say.

Nothing is changed: the session at the source cannot write, and in the lake tables are only opened.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from frazil import errors
from frazil.changelog.table import ChangelogTable
from frazil.config import OnSlotLost, PostgresSection
from frazil.ingest.planning.changelog_plan import ChangelogNow, plan_changelog
from frazil.ingest.planning.table_decisions import judge_tables
from frazil.ledger.table import Ledger
from frazil.ledger.table_state import Copying, Removed, Streaming, TableState
from frazil.model.postgres.lsn import parse_lsn
from frazil.model.source_table import SourceTable
from frazil.model.table_facts import COLUMNS_PROPERTY
from frazil.pipeline.capture import capture_settings, postgres_settings, table_options
from frazil.pipeline.planning.run_plan import ChangelogStep, MirrorStep, RunPlan, TableStep
from frazil.pipeline.tables.captured_mirrors import ledger_name
from frazil.pipeline.tables.captured_names import captured_names
from frazil.sources.postgres.preparation import plan_preparation
from frazil.sources.postgres.tables.description import TableDescription, describe_table
from frazil.sources.postgres.tables.identity import identity_differences, identity_of
from frazil.sources.postgres.tables.selection import is_meant

if TYPE_CHECKING:
    from collections.abc import Mapping

    from frazil.clients.iceberg.lake import Lake
    from frazil.clients.iceberg.table import LakeTable
    from frazil.config import Config
    from frazil.model.marker import Marker
    from frazil.model.table_name import TableName
    from frazil.pipeline.tables.captured_names import CapturedNames, Named
    from frazil.sources.postgres.preparation import SourceLook
    from frazil.sources.postgres.settings import PostgresSettings
    from frazil.sources.postgres.tables.catalog_view import CatalogView


def load_run_plan(lake: Lake, config: Config, look: SourceLook) -> RunPlan:
    """What a run that begins now would do with what ``look`` has seen."""
    settings = postgres_settings(config)
    table_states, acknowledged = _load_book(lake, config)
    after = {**table_states, **_judged(settings, table_states, look, acknowledged)}
    names = [name for name, each in after.items() if not isinstance(each.state, Removed)]
    counts_nothing = all(isinstance(after[name].state, Copying) for name in names)
    since = None if counts_nothing else acknowledged
    preparation = plan_preparation(look, settings, names, since)
    if isinstance(preparation.problem, errors.PositionLostError) and _resyncs_lost(config):
        after |= {name: replace(after[name], state=Copying()) for name in names}
        preparation = plan_preparation(look, settings, names, None)
    planner = _TablePlanner(lake, config, look)
    lake_names = captured_names(config, names, table_states)
    steps = []
    for name in sorted(after):
        stood = table_states[name].state if name in table_states else None
        step = TableStep(table=name, state=after[name].state, stood=stood)
        steps.append(planner.plan(step, lake_names.get(name)))
    return RunPlan(
        slot=settings.slot,
        publication=settings.publication,
        preparation=preparation,
        kept_bytes=look.kept_bytes,
        tables=tuple(steps),
        names={**captured_names(config, after.keys() - set(names)), **lake_names},
    )


def _load_book(lake: Lake, config: Config) -> tuple[dict[str, TableState], Marker | None]:
    try:
        ledger = Ledger.open(lake, ledger_name(config))
    except errors.TableNotFoundError:
        return {}, None
    return {each.table: each for each in ledger.table_states()}, ledger.acknowledged()


def _judged(
    settings: PostgresSettings,
    table_states: Mapping[str, TableState],
    look: SourceLook,
    acknowledged: Marker | None,
) -> dict[str, TableState]:
    """As an ingest that starts would see them."""
    # What it looks at are names and identities; columns are looked at table by table.
    found = {
        name: SourceTable(
            name=name,
            identity=identity_of(view, _wished_key(settings, name)),
            shape="",
            columns=(),
        )
        for name, view in look.views.items()
    }
    # Among them what sends no changes, and has no identity.
    for name, obstacle in look.obstacles.items():
        table = found.get(name) or SourceTable(name=name, identity="", shape="", columns=())
        found[name] = replace(table, obstacle=obstacle)
    changed = judge_tables(
        table_states,
        found,
        selects=lambda name: is_meant(name, include=settings.include, exclude=settings.exclude),
        explain_identity_change=identity_differences,
        position="" if acknowledged is None else str(acknowledged.position),
        retries_paused=True,
    )
    return {each.table: each for each in changed}


def _wished_key(settings: PostgresSettings, table: str) -> tuple[str, ...]:
    try:
        return settings.options(table).key
    except errors.FrazilError:
        # Told with the table's step.
        return ()


def _resyncs_lost(config: Config) -> bool:
    source = config.source
    return isinstance(source, PostgresSection) and source.on_slot_lost is OnSlotLost.RESYNC


class _TablePlanner:
    """Table by table, what becomes of its changelog and its mirror."""

    def __init__(self, lake: Lake, config: Config, look: SourceLook) -> None:
        self._lake = lake
        self._config = config
        self._look = look

    def plan(self, step: TableStep, names: Named | None) -> TableStep:
        """A table that cannot be planned is told with the reason, not raised.

        One that leaves the pipeline needs no names.
        """
        view = self._look.views.get(step.table)
        obstacle = self._look.obstacles.get(step.table)
        if isinstance(names, errors.FrazilError):
            return replace(step, problem=names)
        if obstacle is not None and step.is_copied:
            return replace(step, problem=obstacle)
        if view is None or names is None:
            return step
        table = self._open_table(names.changelog)
        changelog = None if table is None else ChangelogTable(table)
        try:
            if isinstance(step.state, Streaming):
                step = replace(step, has_changes=self._has_changes(changelog, view))
            described = describe_table(view, table_options(self._config, names))
            return replace(
                self._with_mirror(step, names, described),
                estimated_rows=view.table.estimated_rows,
                changelog=self._plan_changelog(step, names, described.table, changelog),
            )
        except errors.FrazilError as error:
            return replace(step, problem=error)

    def _has_changes(self, changelog: ChangelogTable | None, view: CatalogView) -> bool | None:
        pending = self._look.pending
        if pending is None:
            return None
        marker = None if changelog is None else changelog.position()
        at = 0 if marker is None else parse_lsn(str(marker.position))
        # A table skips a transaction that stands before its marker.
        return pending.get(view.table.oid, -1) >= at

    def _plan_changelog(
        self,
        step: TableStep,
        names: CapturedNames,
        table: SourceTable,
        changelog: ChangelogTable | None,
    ) -> ChangelogStep:
        settings = capture_settings(self._config, names)
        now = None if changelog is None else _changelog_now(changelog)
        plan = plan_changelog(
            table,
            now,
            prefix=settings.prefix,
            on_drop=settings.on_drop,
            evolution=settings.evolution,
            restart=step.is_copied,
        )
        return ChangelogStep(
            name=names.changelog,
            is_new=now is None,
            columns=tuple((each.name, str(each.type)) for each in table.columns),
            changes=plan.changes,
        )

    def _with_mirror(
        self, step: TableStep, names: CapturedNames, described: TableDescription
    ) -> TableStep:
        table = described.table
        if not table.key:
            return replace(step, no_mirror=str(described.no_key))
        key = tuple(table.column(number).name for number in table.key)
        is_new = self._open_table(names.mirror) is None
        return replace(step, mirror=MirrorStep(name=names.mirror, is_new=is_new, key=key))

    def _open_table(self, name: TableName) -> LakeTable | None:
        try:
            return self._lake.open(name)
        except errors.TableNotFoundError:
            return None


def _changelog_now(changelog: ChangelogTable) -> ChangelogNow:
    version = changelog.table.load_version()
    state = version.state
    return ChangelogNow(
        schema=version.schema,
        last_column_id=state.last_column_id,
        columns=state.properties.get(COLUMNS_PROPERTY),
        format_version=state.format_version,
        pinned=frozenset(each.source_id for each in version.spec.fields),
    )
