"""The verbs under ``position``: where the tables are, and putting one somewhere else."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from frazil.cli.output import OutputFormat, write_json, write_line, write_note, write_table
from frazil.cli.position_places import ledger_place, place_to_set
from frazil.cli.position_plans import check_position, parse_position, plan_goal
from frazil.cli.position_reports import HEADER, load_report, load_reports, report_json, report_row
from frazil.clients.iceberg.lake import Lake
from frazil.clients.iceberg.strict_commit import StrictCommit
from frazil.clients.spark import open_session
from frazil.errors import ConfigError, FrazilError
from frazil.ledger.rows import LedgerEntry, position_text
from frazil.ledger.table import Ledger
from frazil.mirror.table import nearest_marker
from frazil.model.marker import Override, Role
from frazil.seams import SystemClock, SystemRandomness
from frazil.telemetry.logs import LogLevel, LogSettings, configure_logs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from frazil.cli.invocation import Invocation
    from frazil.cli.position_places import Place
    from frazil.cli.position_reports import MarkerReport
    from frazil.clients.iceberg.table import LakeTable
    from frazil.config import Config
    from frazil.model.marker import Position

NOTE = "position set by operator"
# Enough that two operators never choose the same name for a batch.
_BATCH_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SetRequest:
    """What the operator typed."""

    table: str
    role: Role
    to: str
    source: str | None = None
    dry_run: bool = False
    yes: bool = False


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is there, and what shall be."""

    table: LakeTable
    report: MarkerReport
    override: Override


def show_positions(
    document: Path | None, table: str | None, output: OutputFormat, invocation: Invocation
) -> None:
    """Print every marker that the pipeline has; a table in trouble is told, not raised."""
    config = invocation.load(document).config
    with _opened(config, invocation) as lake:
        reports = load_reports(lake, config, table)
    redactor = invocation.redactor
    if output is OutputFormat.JSON:
        write_json([report_json(report, redactor) for report in reports])
    else:
        write_table([report_row(report, redactor) for report in reports], header=HEADER)


def set_position(
    document: Path | None, request: SetRequest, output: OutputFormat, invocation: Invocation
) -> None:
    """Put a marker where the operator says, by an empty snapshot, and book it in the ledger."""
    if not (request.yes or request.dry_run or sys.stdin.isatty()):
        raise ConfigError(
            "setting a position needs somebody to agree, and this is no terminal.",
            next_step="look with --dry-run, then repeat with --yes",
        )
    config = invocation.load(document).config
    position = parse_position(request.to)
    check_position(position, request.role, config.source)
    with _opened(config, invocation) as lake:
        plan = _load_plan(lake, config, request, position)
        if not (request.yes or request.dry_run):
            write_note(_preview(plan))
            typer.confirm("Set it?", abort=True, err=True)
        if not request.dry_run:
            _apply(lake, config, plan)
    if output is OutputFormat.JSON:
        shown = report_json(plan.report, invocation.redactor)
        goal = plan.override.goal
        to = {"position": request.to, "source": goal.source, "batch": goal.batch}
        write_json({**shown, "to": to, "applied": not request.dry_run})
        return
    write_line(_preview(plan))
    write_line("nothing was changed: --dry-run" if request.dry_run else "set")


@contextmanager
def _opened(config: Config, invocation: Invocation) -> Iterator[Lake]:
    configure_logs(LogSettings(level=LogLevel.WARNING), invocation.redactor)
    with open_session(config) as session:
        yield Lake(session, config.catalog.name)


def _load_plan(lake: Lake, config: Config, request: SetRequest, position: Position) -> _Plan:
    place, changelog = place_to_set(config, request.table, request.role)
    role = request.role
    table = lake.open(place.name)
    state = table.load_state()
    report = load_report(table, state, place, role)
    nearest = nearest_marker(table.load_ancestry(), role)
    source = request.source
    if changelog is not None:
        # The position was looked up in this very table, so this is what it counts in.
        source = source or _load_uuid(lake, changelog, position)
    known = [marker for marker in (report.marker, nearest) if marker is not None]
    if not known and source is None:
        source = _load_ledger_source(lake, config)
    batch = f"set-{SystemRandomness().token(_BATCH_BYTES).hex()}"
    goal = plan_goal(known, pipeline=config.pipeline, position=position, source=source, batch=batch)
    return _Plan(table, report, Override(role, state.properties.get(role.property_name), goal))


def _load_uuid(lake: Lake, changelog: Place, position: Position) -> str:
    table = lake.open(changelog.name)
    if position not in {str(snapshot.id) for snapshot in table.load_ancestry()}:
        message = f"--to: {position_text(position)} is no snapshot in the changelog's history."
        raise ConfigError(
            message,
            table=str(changelog.name),
            next_step=f"look for one in {changelog.name}.history",
        )
    return table.load_state().uuid


def _load_ledger_source(lake: Lake, config: Config) -> str | None:
    """What the pipeline's other positions count in."""
    try:
        marker = Ledger.open(lake, ledger_place(config).name).acknowledged()
    except FrazilError:
        return None
    return None if marker is None else marker.source


def _apply(lake: Lake, config: Config, plan: _Plan) -> None:
    clock = SystemClock()
    started = clock.monotonic()
    goal, found = plan.override.goal, plan.report.marker
    plan.table.commit(StrictCommit(move=plan.override))
    entry = LedgerEntry(
        batch=goal.batch,
        role=plan.override.role,
        table=str(plan.table.name),
        start=None if found is None else found.position,
        goal=goal.position,
        rows=0,
        files=0,
        seconds=clock.monotonic() - started,
        committed_at=clock.now(),
        note=NOTE,
    )
    try:
        ledger = Ledger.ensure(lake, ledger_place(config).name)
        ledger.note([entry], pipeline=config.pipeline, batch=goal.batch)
    except FrazilError:
        write_note(f"{plan.table.name}: the position is set, but the ledger was not told.")
        raise


def _preview(plan: _Plan) -> str:
    report, goal = plan.report, plan.override.goal
    problem = "" if report.problem is None else f", {report.problem.code}"
    return (
        f"{plan.table.name} ({plan.override.role})\n"
        f"  from    {report.position} ({report.validity}{problem})\n"
        f"  to      {position_text(goal.position)}\n"
        f"  source  {goal.source}"
    )
