"""The verb ``teardown``: removes what a pipeline created at its source."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from frazil.cli.output import OutputFormat, write_json, write_line, write_note, write_table
from frazil.errors import ConfigError
from frazil.pipeline.configured_source import configured_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frazil.cli.invocation import Invocation
    from frazil.sources.artifacts import Artifact

HEADER = ("STATE", "KIND", "NAME", "HOW OR WHY")
REMOVED, GONE, FOUND, STAYS = "removed", "gone already", "would be removed", "stays"
LAKE_STAYS = "the tables of the lake stay as they are"


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How far the operator has agreed."""

    dry_run: bool
    yes: bool


def run_teardown(agreement: Agreement, invocation: Invocation) -> None:
    """Show the artifacts, ask, remove them, and say what was removed."""
    if not (agreement.yes or agreement.dry_run or sys.stdin.isatty()):
        raise ConfigError(
            "removing what is at the source needs confirmation, and this is no terminal.",
            next_step="check with --dry-run, then repeat with --yes",
        )
    config = invocation.load_quietly()
    with configured_source(config).open_teardown() as teardown:
        removable = [each for each in teardown.artifacts if each.stays is None]
        states = dict.fromkeys(removable, FOUND)
        if states and not agreement.dry_run:
            teardown.require_idle()
            if not agreement.yes:
                _ask(removable)
            for artifact in states:
                states[artifact] = REMOVED if teardown.remove(artifact) else GONE
                write_note(f"{artifact.kind} {artifact.name}: {states[artifact]}")
        _print(teardown.artifacts, states, invocation.output)


def _ask(removable: Sequence[Artifact]) -> None:
    write_note("At the source, this will be run:")
    for artifact in removable:
        write_note(f"  {artifact.statement}")
    typer.confirm("Remove them?", abort=True, err=True)


def _print(
    artifacts: Sequence[Artifact], states: dict[Artifact, str], output: OutputFormat
) -> None:
    if output is OutputFormat.JSON:
        write_json([_as_json(artifact, states.get(artifact, STAYS)) for artifact in artifacts])
        return
    if artifacts:
        write_table(
            [_row(artifact, states.get(artifact, STAYS)) for artifact in artifacts], header=HEADER
        )
    write_line(conclusion(artifacts, states))


def conclusion(artifacts: Sequence[Artifact], states: dict[Artifact, str]) -> str:
    """The last line."""
    if not states:
        what = "nothing of this pipeline's" if artifacts else "nothing"
        return f"{what} is there to remove; {LAKE_STAYS}"
    if FOUND in states.values():
        return "nothing was changed: --dry-run"
    return f"removed; {LAKE_STAYS}"


def _row(artifact: Artifact, state: str) -> tuple[str, str, str, str]:
    if artifact.stays is not None:
        then = "" if artifact.statement is None else f": {artifact.statement}"
        return state, artifact.kind, artifact.name, f"{artifact.stays}{then}"
    return state, artifact.kind, artifact.name, f"{artifact.statement}{_reader(artifact)}"


def _reader(artifact: Artifact) -> str:
    if artifact.reader is None or artifact.reader.process is None:
        return ""
    called = artifact.reader.application or "a connection without a name"
    return f" -- once process {artifact.reader.process} ({called}) has stopped reading it"


def _as_json(artifact: Artifact, state: str) -> dict[str, object]:
    return {
        "kind": artifact.kind,
        "name": artifact.name,
        "state": state,
        "sql": artifact.statement,
        "reason": artifact.stays,
        "read_by": None if artifact.reader is None else artifact.reader.process,
    }
