"""The verb ``resync``: tables read again from their first row."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from frazil.cli.output import OutputFormat, write_json, write_line, write_note, write_table
from frazil.clients.iceberg.lake import Lake
from frazil.clients.spark.session import open_session
from frazil.errors import ConfigError
from frazil.pipeline.resync import Rebuild, Resync, load_resync
from frazil.pipeline.tables.merge_settings import merge_tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frazil.cli.invocation import Invocation

HEADER = ("TABLE", "STATE", "THEN")
THEN = "read again by the next ingest; a running one notices by itself"
REBUILT = "built again from everything that its changelog holds"


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


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A selected table, its state and what happens to it."""

    table: str
    state: str
    then: str


def run_resync(request: ResyncRequest, invocation: Invocation) -> None:
    """Show the selected tables, ask for confirmation, and mark them in the ledger."""
    _check(request)
    config = invocation.load_quietly()
    mirrors = () if config.source is not None else merge_tables(config, request.tables)
    with open_session(config) as session:
        lake = Lake(session, config.catalog.name)
        work: Resync | Rebuild
        if config.source is None:
            work = Rebuild(session, lake, config, mirrors)
            tables = [_Chosen(each, "mirror", REBUILT) for each in mirrors]
        else:
            work = load_resync(lake, config, request.tables, everything=request.everything)
            tables = [_Chosen(each.table, str(each.state), THEN) for each in work.tables]
        if request.needs_agreement:
            for each in tables:
                write_note(invocation.redactor.redact(f"{each.table}: {each.state}"))
            typer.confirm("Read them again from their first row?", abort=True, err=True)
        if not request.dry_run:
            work.apply()
    done = "marked" if config.source is not None else "built"
    _print(tables, request, invocation, done=done)


def _check(request: ResyncRequest) -> None:
    if request.everything == bool(request.tables):
        raise ConfigError("name the tables to read again, or --all, not both.")
    if request.needs_agreement and not sys.stdin.isatty():
        raise ConfigError(
            "reading all tables again needs confirmation, and this is no terminal.",
            next_step="preview with --dry-run, then repeat with --yes",
        )


def _print(
    tables: Sequence[_Chosen], request: ResyncRequest, invocation: Invocation, *, done: str
) -> None:
    redactor = invocation.redactor
    if invocation.output is OutputFormat.JSON:
        write_json(
            [
                {
                    "table": each.table,
                    "stood": redactor.redact(each.state),
                    "applied": not request.dry_run,
                }
                for each in tables
            ]
        )
        return
    write_table(
        [(each.table, redactor.redact(each.state), each.then) for each in tables], header=HEADER
    )
    write_line("nothing was changed: --dry-run" if request.dry_run else done)
