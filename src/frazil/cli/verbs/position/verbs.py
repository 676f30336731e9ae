"""The verbs under ``position``: show markers, and set one."""

from __future__ import annotations

import sys
from contextlib import contextmanager
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
from frazil.cli.verbs.position.markers import ledger_table
from frazil.cli.verbs.position.reports import HEADER, load_reports, report_json, report_row
from frazil.cli.verbs.position.setting import check_position, load_set_plan, parse_position, preview
from frazil.clients.iceberg.commit.strict_commit import StrictCommit
from frazil.clients.iceberg.lake import Lake
from frazil.clients.spark.session import open_session
from frazil.errors import ConfigError, FrazilError
from frazil.hooks import SystemClock
from frazil.ledger.rows import LedgerEntry, position_text
from frazil.ledger.table import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from frazil.cli.invocation import Invocation
    from frazil.cli.verbs.position.setting import SetPlan, SetRequest
    from frazil.config import Config
    from frazil.telemetry.redaction import Redactor

NOTE = "position set by operator"


def show_positions(
    document: Path | None, table: str | None, output: OutputFormat, invocation: Invocation
) -> None:
    """Print every marker that the pipeline has; a problem of a table is reported, not raised."""
    config = invocation.load_quietly(document)
    with _opened(config) as lake:
        reports = load_reports(lake, config, table)
    redactor = invocation.redactor
    if output is OutputFormat.JSON:
        write_json([report_json(report, redactor) for report in reports])
    else:
        write_table([report_row(report, redactor) for report in reports], header=HEADER)


def set_position(
    document: Path | None, request: SetRequest, output: OutputFormat, invocation: Invocation
) -> None:
    """Set a marker to the operator's position, by an empty snapshot, and record it."""
    if not (request.yes or request.dry_run or sys.stdin.isatty()):
        raise ConfigError(
            "setting a position needs confirmation, and this is no terminal.",
            next_step="preview with --dry-run, then repeat with --yes",
        )
    config = invocation.load_quietly(document)
    if request.to is not None:
        check_position(parse_position(request.to), request.role, config)
    with _opened(config) as lake:
        set_in_lake(lake, config, request, output, invocation.redactor)


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
        ledger = Ledger.ensure(lake, ledger_table(config).name)
        ledger.note([entry], pipeline=config.pipeline, batch=goal.batch)
    except FrazilError:
        write_note(f"{plan.table.name}: the position is set, but the ledger has no entry for it.")
        raise
