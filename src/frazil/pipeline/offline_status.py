"""The state of a pipeline when no process answers: what markers and the ledger say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from frazil.errors import FrazilError, TableNotFoundError
from frazil.hooks import SystemClock
from frazil.ledger.table import Ledger
from frazil.ledger.table_state import Copying
from frazil.model.marker import MarkerRole
from frazil.model.table_name import parse_table_name
from frazil.pipeline.configured_source import configured_source
from frazil.pipeline.status.lake_facts import LakeFacts, load_lake_facts
from frazil.pipeline.status.problems import problem_of_error, problem_of_state
from frazil.pipeline.status.values import Phase, PipelineStatus, SourceStatus, TableStatus
from frazil.pipeline.tables.captured_mirrors import ledger_name, load_captured_mirror
from frazil.pipeline.tables.captured_names import captured_names
from frazil.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from frazil.clients.iceberg.lake import Lake
    from frazil.config import Config
    from frazil.hooks import Clock
    from frazil.ledger.table import DatedState
    from frazil.pipeline.status.values import CommitStatus, ProblemStatus
    from frazil.pipeline.tables.captured_names import Named


def load_offline_status(
    lake: Lake, config: Config, *, clock: Clock | None = None
) -> PipelineStatus:
    """From the ledger and the tables. Only a running process knows how far readers are behind.

    A catalog or store that does not answer is raised; what is wrong with one table is its problem,
    and a source that does not answer is one of which nothing is known.
    """
    now = (clock or SystemClock()).now()
    source = None
    if config.source is None:
        tables = _listed_tables(lake, config, now)
    else:
        tables = _captured_tables(lake, config, now)
        source = _source(lake, config, tables, now)
    commits = sorted((each for one in tables for each in one.commits), key=lambda each: each.at)
    return PipelineStatus(
        pipeline=config.pipeline,
        version=__version__,
        at=now,
        started_at=None,
        is_live=False,
        source=source,
        tables=tables,
        commits=tuple(reversed(commits)),
    )


def _source(
    lake: Lake, config: Config, tables: Sequence[TableStatus], now: datetime
) -> SourceStatus:
    """The health of the source, and whether it still has what the tables need."""
    kind = configured_source(config)
    status = SourceStatus(kind=kind.name)
    watch = kind.watch()
    try:
        health = watch.load()
    except FrazilError:
        return replace(status, unknown_since=now)
    finally:
        watch.close()
    problem = None
    if health.problem is not None and any(each.phase is not Phase.COPYING for each in tables):
        problem = problem_of_error(health.problem, since=now)
    facts = health.facts
    if facts is not None and facts.partitions:
        facts = facts.captured_to(_acknowledged(lake, config))
    return replace(status, health=facts, trouble=problem)


def _acknowledged(lake: Lake, config: Config) -> Mapping[str, int] | None:
    """The offsets of partitions, as the ledger has them."""
    try:
        marker = Ledger.open(lake, ledger_name(config)).acknowledged()
    except TableNotFoundError:
        return None
    position = None if marker is None else marker.position
    return position if isinstance(position, Mapping) else None


def _captured_tables(lake: Lake, config: Config, now: datetime) -> tuple[TableStatus, ...]:
    try:
        ledger = Ledger.open(lake, ledger_name(config))
    except TableNotFoundError:
        return ()
    table_states = ledger.dated_states()
    known = {each.state.table: each.state for each in table_states}
    names = captured_names(config, known, known)
    return tuple(_captured(lake, each, names[each.state.table], now) for each in table_states)


def _captured(lake: Lake, dated: DatedState, names: Named, now: datetime) -> TableStatus:
    table, state = dated.state.table, dated.state.state
    if isinstance(names, FrazilError):
        unnamed = problem_of_error(names, since=now)
        return TableStatus(table=table, phase=Phase.STOPPED, since=dated.since, trouble=unnamed)
    changelog = load_lake_facts(lake, names.changelog, MarkerRole.INGEST, table)
    mirror = LakeFacts()
    if names.mirror is not None:
        mirror = load_lake_facts(lake, names.mirror, MarkerRole.MERGE, table)
    problem = problem_of_state(table, state, since=dated.since) or _problem(
        # While a table is copied, the state of its tables does not matter.
        () if isinstance(state, Copying) else (changelog, mirror),
        now,
    )
    return TableStatus(
        table=table,
        phase=_phase(problem, is_copied=isinstance(state, Copying)),
        since=dated.since,
        changelog=str(names.changelog),
        mirror=str(names.mirror) if mirror.commits else None,
        is_first_load=_is_empty(changelog)
        or (_is_empty(mirror) and load_captured_mirror(lake, table, names) is not None),
        mirror_rows=mirror.rows if mirror.commits else None,
        changelog_rows=changelog.rows,
        commits=_newest_first(changelog, mirror),
        trouble=problem,
    )


def _listed_tables(lake: Lake, config: Config, now: datetime) -> tuple[TableStatus, ...]:
    catalog = config.catalog.name
    tables = []
    for each in config.tables:
        facts = [
            load_lake_facts(
                lake, parse_table_name(each.mirror, catalog=catalog), MarkerRole.MERGE, each.mirror
            )
        ]
        if each.changelog is not None:
            name = parse_table_name(each.changelog, catalog=catalog)
            # The system that fills it may keep a marker of its own.
            facts.append(load_lake_facts(lake, name, None, each.mirror))
        problem = _problem(facts, now)
        commits = _newest_first(*facts)
        tables.append(
            TableStatus(
                table=each.mirror,
                phase=_phase(problem),
                since=commits[0].at if commits else now,
                changelog=each.changelog,
                mirror=each.mirror,
                is_first_load=_is_empty(facts[0]),
                mirror_rows=facts[0].rows,
                changelog_rows=facts[1].rows if len(facts) > 1 else None,
                commits=commits,
                trouble=problem,
            )
        )
    return tuple(tables)


def _is_empty(facts: LakeFacts) -> bool:
    return not facts.commits and facts.error is None


def _problem(facts: Sequence[LakeFacts], now: datetime) -> ProblemStatus | None:
    errors = [each.error for each in facts if each.error is not None]
    return problem_of_error(errors[0], since=now) if errors else None


def _phase(problem: ProblemStatus | None, *, is_copied: bool = False) -> Phase:
    if problem is not None:
        return Phase.STOPPED
    # Nothing is streamed while no process runs.
    return Phase.COPYING if is_copied else Phase.WAITING


def _newest_first(*facts: LakeFacts) -> tuple[CommitStatus, ...]:
    commits = [commit for each in facts for commit in each.commits]
    return tuple(sorted(commits, key=lambda each: each.at, reverse=True))
