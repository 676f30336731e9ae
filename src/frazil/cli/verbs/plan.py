"""The verb ``plan``: what the next run would do, at the source and in the lake."""

from __future__ import annotations

from contextlib import suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING

from frazil.cli.exit_codes import ExitCode
from frazil.cli.results.plan_results import Planned, print_plan
from frazil.clients.iceberg.lake import Lake
from frazil.clients.spark.session import open_session
from frazil.errors import ConfigError, FrazilError
from frazil.maintain.facts import KeptRole
from frazil.merge.merger import Merger
from frazil.pipeline.configured_source import configured_source
from frazil.pipeline.maintenance import PipelineUpkeep
from frazil.pipeline.planning.load_plan import load_run_plan
from frazil.pipeline.recovery import RecoveryAction, recovery_for
from frazil.pipeline.tables.captured_mirrors import load_captured_mirrors
from frazil.pipeline.tables.merge_settings import check_merges, load_merges, plan_merges
from frazil.telemetry.progress import doing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from frazil.cli.invocation import Invocation
    from frazil.cli.results.plan_results import MergeFound
    from frazil.clients.spark.session import Session
    from frazil.config import Config
    from frazil.maintain.maintainer import UpkeepPlan
    from frazil.merge.planning.settings import MergeSettings
    from frazil.pipeline.planning.run_plan import RunPlan, TableStep
    from frazil.pipeline.tables.captured_names import Named
    from frazil.sources.plan_facts import PlanFacts

# Tables of the pipeline itself.
_PIPELINE_ROLES = frozenset({KeptRole.LEDGER, KeptRole.DEAD_LETTERS})


def show_plans(tables: Sequence[str], invocation: Invocation, *, exit_code: bool) -> ExitCode:
    """Print what happens at the source and to each table; nothing is changed.

    A table that cannot be planned is reported, not raised.
    """
    config = invocation.load_quietly()
    check_merges(config, tables)
    # Before Spark is started: an unreachable source is reported at once.
    with doing("reading the source"):
        facts = None if config.source is None else configured_source(config).load_plan_facts()
    with open_session(config) as session, doing("reading the lake"):
        run, planned = load_plans(session, config, tables, facts)
        upkeep = _load_upkeep(session, config, planned)
    print_plan(run, planned, invocation.output, invocation.redactor, upkeep)
    has_work = run is not None and run.has_work
    found: list[MergeFound] = [each.merge for each in planned]
    if run is not None:
        found += [run.preparation.problem]
    found += [each.capture.problem for each in planned if each.capture is not None]
    return exit_code_of(found, ask_for_work=exit_code, has_work=has_work)


def load_plans(
    session: Session, config: Config, tables: Sequence[str], facts: PlanFacts | None
) -> tuple[RunPlan | None, list[Planned]]:
    """What is done at the source, and every selected table: captured ones first."""
    lake = Lake(session, config.catalog.name)
    if facts is None:
        merges = _load_merges(session, lake, load_merges(lake, config, tables))
        return None, [Planned(table=mirror, merge=each) for mirror, each in merges.items()]
    run = load_run_plan(lake, config, facts)
    captured = load_captured_mirrors(lake, config)
    listed = any(each.changelog is not None and each.key for each in config.tables)
    settings = plan_merges(config, (), captured=captured) if captured or listed else {}
    planned = [_planned(step, run.names[step.table]) for step in run.tables]
    covered = {each.mirror for each in planned}
    planned += [
        Planned(table=mirror, mirror=mirror, names=(mirror, str(each.changelog)))
        for mirror, each in settings.items()
        if mirror not in covered
    ]
    chosen = _chosen(planned, tables)
    wanted = {each.mirror for each in chosen}
    merges = _load_merges(
        session, lake, {mirror: each for mirror, each in settings.items() if mirror in wanted}
    )
    return run, [each.with_merge(merges) for each in chosen]


def _load_upkeep(session: Session, config: Config, planned: Sequence[Planned]) -> list[UpkeepPlan]:
    """What maintenance would do with the tables of the lake that are planned; first merges first.

    Tables that cannot be read are reported with their merge.
    """
    if not config.maintenance.enabled:
        return []
    upkeep = PipelineUpkeep(session, config)
    wanted = {name for each in planned for name in (*each.names, each.table, each.mirror)}
    found = []
    for table in upkeep.load_tables():
        names = {str(table.name), *map(str, table.mirrors)}
        if table.role in _PIPELINE_ROLES or names & wanted:
            with suppress(FrazilError):
                plan = upkeep.load_plan(table)
                found += [] if plan is None else [plan]
    return found


def _planned(step: TableStep, names: Named) -> Planned:
    if isinstance(names, FrazilError):
        return Planned(table=step.table, capture=step, names=(step.table,))
    known = tuple(dict.fromkeys((step.table, names.listed_as, str(names.changelog))))
    return Planned(table=step.table, capture=step, mirror=names.mirror_text, names=known)


def _load_merges(
    session: Session, lake: Lake, settings: Mapping[str, MergeSettings]
) -> dict[str, MergeFound]:
    found: dict[str, MergeFound] = {}
    for mirror, each in settings.items():
        try:
            found[mirror] = Merger(session, lake, each).load_plan()
        except FrazilError as error:
            found[mirror] = error
    return found


def _chosen(planned: Sequence[Planned], tables: Sequence[str]) -> list[Planned]:
    """Those of these names; all without a name."""
    known = {name for each in planned for name in each.names}
    for name in tables:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else "."
            message = f"--table: {name!r} is not among the tables of the pipeline{hint}"
            raise ConfigError(message, next_step="frazil check lists them")
    return [each for each in planned if not tables or set(tables) & set(each.names)]


def exit_code_of(
    found: Sequence[MergeFound], *, ask_for_work: bool, has_work: bool = False
) -> ExitCode:
    """The gravest finding; pending work counts only with the option for it."""
    actions = [recovery_for(each).action for each in found if isinstance(each, FrazilError)]
    if any(action is not RecoveryAction.NEVER for action in actions):
        return ExitCode.FAILED
    if actions:
        return ExitCode.ACTION_REQUIRED
    has_work = has_work or any(each is not None for each in found)
    return ExitCode.DIFFERENCE if ask_for_work and has_work else ExitCode.DONE
