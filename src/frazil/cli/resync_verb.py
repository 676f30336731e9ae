"""The verb ``resync``: tables read again from their first row."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from frazil.cli.output import OutputFormat, write_json, write_line, write_note, write_table
from frazil.clients.iceberg.lake import Lake
from frazil.clients.spark import open_session
from frazil.errors import ConfigError
from frazil.pipeline.resync import load_resync
from frazil.telemetry.logs import LogLevel, LogSettings, configure_logs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from frazil.cli.invocation import Invocation
    from frazil.ledger.standing import TableStanding
    from frazil.telemetry.redaction import Redactor

HEADER = ("TABLE", "STANDS NOW", "THEN")
THEN = "read again by the next ingest; a running one takes it up by itself"


@dataclass(frozen=True, slots=True)
class ResyncRequest:
    """What the operator typed."""

    tables: tuple[str, ...]
    everything: bool
    dry_run: bool
    yes: bool

    @property
    def needs_agreement(self) -> bool:
        """Nothing is destroyed, so naming a table is enough; all of them may cost hours."""
        return self.everything and not (self.yes or self.dry_run)


def run_resync(
    document: Path | None, request: ResyncRequest, output: OutputFormat, invocation: Invocation
) -> None:
    """Show which tables are meant, ask, and mark them in the ledger."""
    _check(request)
    config = invocation.load(document).config
    configure_logs(LogSettings(level=LogLevel.WARNING), invocation.redactor)
    with open_session(config) as session:
        lake = Lake(session, config.catalog.name)
        resync = load_resync(lake, config, request.tables, everything=request.everything)
        if request.needs_agreement:
            for each in resync.tables:
                write_note(invocation.redactor.redact(f"{each.table}: {each.state}"))
            typer.confirm("Read them again from their first row?", abort=True, err=True)
        if not request.dry_run:
            resync.apply()
    _print(resync.tables, request, output, invocation.redactor)


def _check(request: ResyncRequest) -> None:
    if request.everything == bool(request.tables):
        raise ConfigError("name the tables to read again, or --all, not both.")
    if request.needs_agreement and not sys.stdin.isatty():
        raise ConfigError(
            "reading all tables again needs somebody to agree, and this is no terminal.",
            next_step="look with --dry-run, then repeat with --yes",
        )


def _print(
    tables: Sequence[TableStanding],
    request: ResyncRequest,
    output: OutputFormat,
    redactor: Redactor,
) -> None:
    if output is OutputFormat.JSON:
        write_json(
            [
                {
                    "table": each.table,
                    "stood": redactor.redact(str(each.state)),
                    "applied": not request.dry_run,
                }
                for each in tables
            ]
        )
        return
    write_table(
        [(each.table, redactor.redact(str(each.state)), THEN) for each in tables], header=HEADER
    )
    write_line("nothing was changed: --dry-run" if request.dry_run else "marked")
