"""The verb ``teardown``: nothing of a pipeline is left at its source."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from frazil.cli.output import OutputFormat, write_json, write_line, write_note, write_table
from frazil.errors import ConfigError
from frazil.model.log_output import LogLevel
from frazil.pipeline.teardown import open_teardown
from frazil.telemetry.logs import LogSettings, configure_logs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from frazil.cli.invocation import Invocation
    from frazil.pipeline.teardown import Teardown
    from frazil.sources.postgres.artifacts import Artifact

HEADER = ("STATE", "KIND", "NAME", "HOW OR WHY")
REMOVED, GONE, FOUND, STAYS = "removed", "gone already", "would be removed", "stays"
LAKE_STAYS = "the tables of the lake stay as they are"


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How far somebody has agreed."""

    dry_run: bool
    yes: bool


def run_teardown(
    document: Path | None, agreement: Agreement, output: OutputFormat, invocation: Invocation
) -> None:
    """Show the traces, ask, remove them, and say what was removed."""
    if not (agreement.yes or agreement.dry_run or sys.stdin.isatty()):
        raise ConfigError(
            "removing what is at the source needs somebody to agree, and this is no terminal.",
            next_step="look with --dry-run, then repeat with --yes",
        )
    config = invocation.load(document).config
    configure_logs(LogSettings(level=LogLevel.WARNING), invocation.redactor)
    with open_teardown(config) as teardown:
        states = dict.fromkeys(teardown.removable, FOUND)
        if states and not agreement.dry_run:
            teardown.require_idle()
            if not agreement.yes:
                _ask(teardown)
            for trace in states:
                states[trace] = REMOVED if teardown.remove(trace) else GONE
                write_note(f"{trace.kind} {trace.name}: {states[trace]}")
        _print(teardown.traces, states, output)


def _ask(teardown: Teardown) -> None:
    write_note("At the source, this will be run:")
    for trace in teardown.removable:
        write_note(f"  {trace.statement}")
    typer.confirm("Remove them?", abort=True, err=True)


def _print(traces: Sequence[Artifact], states: dict[Artifact, str], output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        write_json([_as_json(trace, states.get(trace, STAYS)) for trace in traces])
        return
    if traces:
        write_table([_row(trace, states.get(trace, STAYS)) for trace in traces], header=HEADER)
    write_line(conclusion(traces, states))


def conclusion(traces: Sequence[Artifact], states: dict[Artifact, str]) -> str:
    """The last line."""
    if not states:
        what = "nothing of this pipeline's" if traces else "nothing"
        return f"{what} is there to remove; {LAKE_STAYS}"
    if FOUND in states.values():
        return "nothing was changed: --dry-run"
    return f"removed; {LAKE_STAYS}"


def _row(trace: Artifact, state: str) -> tuple[str, str, str, str]:
    if trace.stays is not None:
        then = "" if trace.statement is None else f": {trace.statement}"
        return state, trace.kind.value, trace.name, f"{trace.stays}{then}"
    return state, trace.kind.value, trace.name, f"{trace.statement}{_reader(trace)}"


def _reader(trace: Artifact) -> str:
    if trace.reader is None or trace.reader.process is None:
        return ""
    called = trace.reader.application or "a connection without a name"
    return f" -- once process {trace.reader.process} ({called}) has stopped reading it"


def _as_json(trace: Artifact, state: str) -> dict[str, object]:
    return {
        "kind": trace.kind.value,
        "name": trace.name,
        "state": state,
        "sql": trace.statement,
        "reason": trace.stays,
        "read_by": None if trace.reader is None else trace.reader.process,
    }
