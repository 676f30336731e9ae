"""The plan of the next run, from what the source, the ledger and the tables say.

Nothing is changed: the session at the source cannot write, and tables of the lake are only opened.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from frazil import errors
from frazil.changelog.table import ChangelogTable
from frazil.config import table_settings
from frazil.ingest.captured_table import changelog_now, missing_table
from frazil.ingest.planning.changelog_plan import plan_changelog
from frazil.ingest.planning.column_numbers import decode_column_numbers
from frazil.ingest.planning.table_decisions import judge_tables, plan_needs
from frazil.ledger.rows import brief_position
from frazil.ledger.table import Ledger
from frazil.ledger.table_state import Streaming, TableState
from frazil.pipeline.capture import capture_settings
from frazil.pipeline.configured_source import configured_source
from frazil.pipeline.planning.run_plan import ChangelogStep, MirrorStep, RunPlan, TableStep
from frazil.pipeline.tables.captured_mirrors import ledger_name
from frazil.pipeline.tables.captured_names import captured_names
from frazil.sources.protocol import TableProgress

if TYPE_CHECKING:
    from collections.abc import Mapping

    from frazil.clients.iceberg.lake import Lake
    from frazil.clients.iceberg.table import LakeTable
    from frazil.config import Config
    from frazil.ingest.planning.changelog_plan import ChangelogNow
    from frazil.model.marker import Marker, Position
    from frazil.model.source_table import SourceTable
    from frazil.model.table_name import TableName
    from frazil.pipeline.tables.captured_names import CapturedNames, Named
    from frazil.sources.kind import CapturePolicy
    from frazil.sources.plan_facts import PlanFacts, PlannedTable


def load_run_plan(lake: Lake, config: Config, facts: PlanFacts) -> RunPlan:
    """What a run that begins now would do with a source in this state."""
    policy = configured_source(config).policy
    table_states, acknowledged = _load_ledger(lake, config)
    judged = _judged(table_states, facts, acknowledged)
    needs = plan_needs({**table_states, **judged}, acknowledged)
    preparation = facts.plan_preparation(needs.tables, needs.since)
    if isinstance(preparation.problem, errors.PositionLostError) and policy.resyncs_lost:
        needs = needs.after_loss()
        preparation = facts.plan_preparation(needs.tables, needs.since)
    after = needs.table_states
    position = None if acknowledged is None else acknowledged.position
    planner = _TablePlanner(lake, config, facts, policy, position)
    lake_names = captured_names(config, needs.tables, table_states)
    steps = []
    for name in sorted(after):
        recorded = table_states[name].state if name in table_states else None
        step = TableStep(table=name, state=after[name].state, recorded=recorded)
        steps.append(planner.plan(step, lake_names.get(name), identity=after[name].identity))
    return RunPlan(
        preparation=preparation,
        tables=tuple(steps),
        names={**captured_names(config, after.keys() - set(needs.tables)), **lake_names},
    )


def _load_ledger(lake: Lake, config: Config) -> tuple[dict[str, TableState], Marker | None]:
    try:
        ledger = Ledger.open(lake, ledger_name(config))
    except errors.TableNotFoundError:
        return {}, None
    return {each.table: each for each in ledger.table_states()}, ledger.acknowledged()


def _judged(
    table_states: Mapping[str, TableState], facts: PlanFacts, acknowledged: Marker | None
) -> dict[str, TableState]:
    """As an ingest that starts would see them."""
    changed = judge_tables(
        table_states,
        facts.tables,
        selects=facts.selects,
        explain_identity_change=facts.explain_identity_change,
        position=brief_position(None if acknowledged is None else acknowledged.position),
        retries_paused=True,
    )
    return {each.table: each for each in changed}


class _TablePlanner:
    """Table by table, what becomes of its changelog and its mirror."""

    def __init__(
        self,
        lake: Lake,
        config: Config,
        facts: PlanFacts,
        policy: CapturePolicy,
        acknowledged: Position | None,
    ) -> None:
        self._lake = lake
        self._config = config
        self._facts = facts
        self._policy = policy
        self._acknowledged = acknowledged

    def plan(self, step: TableStep, names: Named | None, *, identity: str) -> TableStep:
        """The step with what it takes; a table that cannot be planned has the reason instead.

        One that leaves the pipeline needs no names. ``identity`` is that of what was captured.
        """
        found = self._facts.tables.get(step.table)
        if isinstance(names, errors.FrazilError):
            return replace(step, problem=names)
        if found is not None and found.obstacle is not None and step.is_copied:
            return replace(step, problem=found.obstacle)
        if found is None or not found.identity or names is None:
            return step
        try:
            captured = _CapturedNow.load(self._lake, names.changelog, found, identity=identity)
            if isinstance(step.state, Streaming):
                at = TableProgress(captured.position, identity, captured.shape)
                waiting = self._facts.load_waiting(step.table, at, self._acknowledged)
                step = replace(step, waiting=waiting)
            settings = table_settings(self._config, names.listed_as)
            described = self._facts.describe(step.table, settings, captured.shape)
            return replace(
                self._with_mirror(step, names, described),
                estimated_rows=described.estimated_rows,
                changelog=self._plan_changelog(step, names, described.table, captured),
            )
        except errors.FrazilError as error:
            return replace(step, problem=error)

    def _plan_changelog(
        self, step: TableStep, names: CapturedNames, table: SourceTable, captured: _CapturedNow
    ) -> ChangelogStep:
        settings = capture_settings(self._config, names, self._policy)
        if captured.now is None and not table.layout.is_created:
            raise missing_table(table.name, str(names.changelog))
        plan = plan_changelog(
            table,
            captured.now,
            prefix=settings.prefix,
            on_drop=settings.on_drop,
            evolution=settings.evolution,
            restart=step.is_copied or captured.is_empty,
            takes_over=captured.is_foreign,
        )
        return ChangelogStep(
            name=names.changelog,
            is_new=captured.now is None,
            columns=tuple((each.name, str(each.type)) for each in table.columns),
            changes=plan.changes,
            takes_over=captured.is_foreign,
        )

    def _with_mirror(
        self, step: TableStep, names: CapturedNames, described: PlannedTable
    ) -> TableStep:
        table = described.table
        if not table.key or names.mirror is None:
            return replace(step, no_mirror=described.no_key)
        key = tuple(table.column(number).name for number in table.key)
        is_new = self._open_table(names.mirror) is None
        return replace(step, mirror=MirrorStep(name=names.mirror, is_new=is_new, key=key))

    def _open_table(self, name: TableName) -> LakeTable | None:
        try:
            return self._lake.open(name)
        except errors.TableNotFoundError:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _CapturedNow:
    """A changelog as it is, if it is; ``is_foreign``: its rows are those of another writer."""

    now: ChangelogNow | None = None
    position: Position | None = None
    shape: str = ""
    is_empty: bool = False
    is_foreign: bool = False

    @classmethod
    def load(
        cls, lake: Lake, name: TableName, table: SourceTable, *, identity: str
    ) -> _CapturedNow:
        """As an ingest that starts would find it."""
        try:
            changelog = ChangelogTable.open(lake, name)
        except errors.TableNotFoundError:
            return cls()
        now = changelog_now(changelog.table.load_version())
        # Where something was captured before, rows without a marker are a loss.
        columns = None if identity else table.layout.offset_columns
        try:
            marker = changelog.position()
        except errors.MarkerLostError:
            if columns is None:
                raise
            position = changelog.load_next_offsets(table.name, columns)
            return cls(now=now, position=position, is_foreign=True)
        if marker is None or now.columns is None:
            return cls(now=now, is_empty=marker is None)
        shape = decode_column_numbers(now.columns, table=str(name)).shape
        return cls(now=now, position=marker.position, shape=shape)
