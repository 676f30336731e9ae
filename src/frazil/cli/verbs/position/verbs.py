"""The verbs under ``position``: show markers, and set one.

An operator's position is checked and completed to a marker before anything is changed.
"""

from __future__ import annotations

import json
import re
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from frazil.cli.output import (
    OutputFormat,
    write_json,
    write_line,
    write_note,
    write_table,
    write_text,
)
from frazil.cli.verbs.position.reports import (
    HEADER,
    ledger_table,
    load_report,
    load_reports,
    report_json,
    report_row,
    table_to_set,
)
from frazil.clients.iceberg.commit.strict_commit import StrictCommit
from frazil.clients.iceberg.lake import Lake
from frazil.clients.spark.session import open_session
from frazil.errors import ConfigError, FrazilError
from frazil.hooks import SystemClock, SystemRandomness
from frazil.ledger.rows import LedgerEntry, position_text
from frazil.ledger.table import Ledger
from frazil.mirror.table import nearest_marker
from frazil.model.command import command
from frazil.model.marker import Marker, MarkerRole, Override
from frazil.pipeline.configured_source import configured_source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from frazil.cli.invocation import Invocation
    from frazil.cli.verbs.position.reports import MarkerReport, MarkerTable
    from frazil.clients.iceberg.table import LakeTable
    from frazil.config import Config
    from frazil.model.marker import Position
    from frazil.telemetry.redaction import Redactor

_NUMBER = re.compile(r"[0-9]{1,19}")

# Enough that two operators never choose the same name for a batch.
_BATCH_BYTES = 8

NOTE = "position set by operator"


def parse_position(text: str) -> Position:
    """Read a position as ``position show`` prints it: text, or a JSON object of offsets."""
    if not text.startswith("{"):
        return text
    try:
        offsets = json.loads(text)
    except json.JSONDecodeError as error:
        message = f"the position is no JSON object: {error.msg} at character {error.pos}."
        raise ConfigError(message) from error
    for offset in offsets.values():
        if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
            raise ConfigError("every offset of a position must be a number of at least 0.")
    return {str(partition): int(offset) for partition, offset in offsets.items()}


def check_position(position: Position, role: MarkerRole, config: Config) -> None:
    """Refuse what cannot be a position of this role with this source."""
    problem = None
    if role is MarkerRole.MERGE:
        if not (isinstance(position, str) and _NUMBER.fullmatch(position)):
            problem = "a mirror's position is a snapshot id of its changelog"
    elif config.source is not None:
        problem = configured_source(config).position_problem(position)
    elif not position:
        problem = "a position is not empty"
    if problem is not None:
        message = f"--to: {problem}."
        raise ConfigError(message, next_step="frazil position show prints positions as they are")


def complete_position(position: Position, valid: Marker | None, source: str | None) -> Position:
    """By partition, those that the operator does not name stay where a valid marker has them."""
    if valid is None or isinstance(position, str) or isinstance(valid.position, str):
        return position
    return position if source not in (None, valid.source) else {**valid.position, **position}


def plan_goal(
    known: Sequence[Marker],
    *,
    pipeline: str,
    position: Position,
    source: str | None,
    batch: str,
) -> Marker:
    """The marker to write; what the operator did not say comes from the markers ``known``.

    How far rows were merged is kept only where it was known for this very position: a wrong
    answer would stop the table, or let an old change win.
    """
    chosen = source or next((marker.source for marker in known if marker.source), None)
    if chosen is None:
        raise ConfigError(
            "the table has no marker that gives the kind of its positions.",
            next_step="say it with --source",
        )
    same = next(
        (each for each in known if each.position == position and each.source == chosen), None
    )
    return Marker(
        pipeline=pipeline,
        source=chosen,
        position=position,
        batch=batch,
        epoch=max((marker.epoch for marker in known), default=0),
        sequence=None if same is None else same.sequence,
        truncated=None if same is None else same.truncated,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SetRequest:
    """What the operator typed."""

    table: str
    role: MarkerRole
    # Without one, that of the state that is there.
    to: str | None
    source: str | None = None
    dry_run: bool = False
    yes: bool = False


@dataclass(frozen=True, slots=True)
class SetPlan:
    """The marker before and after."""

    table: LakeTable
    report: MarkerReport
    override: Override


def load_set_plan(lake: Lake, config: Config, request: SetRequest) -> SetPlan:
    """Load the table and complete the request; changes nothing."""
    marker_table, changelog = table_to_set(config, request.table, request.role)
    role = request.role
    table = lake.open(marker_table.name)
    state = table.load_state()
    report = load_report(table, state, marker_table, role)
    nearest = nearest_marker(table.iter_with_expired(), role)
    source = request.source
    position = _found(report) if request.to is None else parse_position(request.to)
    position = complete_position(position, None if report.problem else report.marker, source)
    if changelog is not None:
        # The position was looked up in this very table, so this is what it counts in.
        source = source or _load_uuid(lake, changelog, position)
    known = [marker for marker in (report.marker, nearest) if marker is not None]
    if role is MarkerRole.INGEST and not known and source is None:
        source = _load_ledger_source(lake, config)
    batch = f"set-{SystemRandomness().token(_BATCH_BYTES).hex()}"
    goal = plan_goal(known, pipeline=config.pipeline, position=position, source=source, batch=batch)
    return SetPlan(table, report, Override(role, state.properties.get(role.property_name), goal))


def _found(report: MarkerReport) -> Position:
    """The position of the table's current state."""
    if report.recoverable is None:
        name = report.marker_table.name
        raise ConfigError(
            "--to: the position of the table's current state is unknown.",
            table=str(name),
            next_step=f"name it with --to, or {command('resync', name)}",
        )
    return report.recoverable.position


def _load_uuid(lake: Lake, changelog: MarkerTable, position: Position) -> str:
    table = lake.open(changelog.name)
    text = position_text(position)
    if text not in {str(snapshot.id) for snapshot in table.load_ancestry()}:
        message = f"--to: {text} is no snapshot in the changelog's history."
        raise ConfigError(
            message,
            table=str(changelog.name),
            next_step=f"find one in {changelog.name}.history",
        )
    return table.load_state().uuid


def _load_ledger_source(lake: Lake, config: Config) -> str | None:
    """The kind of the pipeline's other positions."""
    try:
        marker = Ledger.open(lake, ledger_table(config).name).acknowledged()
    except FrazilError:
        return None
    return None if marker is None else marker.source


def preview(plan: SetPlan) -> str:
    """From where to where, for the operator who decides."""
    report, goal = plan.report, plan.override.goal
    problem = "" if report.problem is None else f", {report.problem.code}"
    return (
        f"{plan.table.name} ({plan.override.role})\n"
        f"  from    {report.position} ({report.validity}{problem})\n"
        f"  to      {position_text(goal.position)}\n"
        f"  source  {goal.source}"
    )


def show_positions(table: str | None, invocation: Invocation) -> None:
    """Print every marker that the pipeline has; a problem of a table is reported, not raised."""
    config = invocation.load_quietly()
    with _opened(config) as lake:
        reports = load_reports(lake, config, table)
    redactor = invocation.redactor
    if invocation.output is OutputFormat.JSON:
        write_json([report_json(report, redactor) for report in reports])
    else:
        write_table([report_row(report, redactor) for report in reports], header=HEADER)


def set_position(request: SetRequest, invocation: Invocation) -> None:
    """Set a marker to the operator's position, by an empty snapshot, and record it."""
    if not (request.yes or request.dry_run or sys.stdin.isatty()):
        raise ConfigError(
            "setting a position needs confirmation, and this is no terminal.",
            next_step="preview with --dry-run, then repeat with --yes",
        )
    config = invocation.load_quietly()
    if request.to is not None:
        check_position(parse_position(request.to), request.role, config)
    with _opened(config) as lake:
        set_in_lake(lake, config, request, invocation.output, invocation.redactor)


def set_in_lake(
    lake: Lake, config: Config, request: SetRequest, output: OutputFormat, redactor: Redactor
) -> None:
    """The same, in a lake that is open."""
    plan = load_set_plan(lake, config, request)
    if not (request.yes or request.dry_run):
        write_note(redactor.redact(preview(plan)))
        typer.confirm("Set it?", abort=True, err=True)
    if not request.dry_run:
        _apply(lake, config, plan)
    if output is OutputFormat.JSON:
        goal = plan.override.goal
        to = {"position": position_text(goal.position), "source": goal.source, "batch": goal.batch}
        found = report_json(plan.report, redactor)
        write_json({**found, "to": to, "applied": not request.dry_run})
        return
    write_text(redactor.redact(preview(plan)))
    write_line("nothing was changed: --dry-run" if request.dry_run else "set")


@contextmanager
def _opened(config: Config) -> Iterator[Lake]:
    with open_session(config) as session:
        yield Lake(session, config.catalog.name)


def _apply(lake: Lake, config: Config, plan: SetPlan) -> None:
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
        version = config.mirror.format_version
        ledger = Ledger.ensure(lake, ledger_table(config).name, format_version=version)
        ledger.note([entry], pipeline=config.pipeline, batch=goal.batch)
    except FrazilError:
        write_note(f"{plan.table.name}: the position is set, but the ledger has no entry for it.")
        raise
