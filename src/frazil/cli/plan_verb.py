"""The verb ``plan``: what the next merge of each table would do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.cli.exit_codes import ExitCode
from frazil.cli.output import OutputFormat, write_json, write_line
from frazil.clients.iceberg.lake import Lake
from frazil.clients.spark import open_session
from frazil.errors import FrazilError
from frazil.merge.merger import Merger
from frazil.merge.plan import describe, plan_document
from frazil.pipeline.assemble import check_merges, load_merges
from frazil.pipeline.recovery import Action, recovery_for
from frazil.telemetry.logs import LogLevel, LogSettings, configure_logs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from frazil.cli.invocation import Invocation
    from frazil.merge.plan import MergePlan
    from frazil.telemetry.redaction import Redactor


def show_plans(
    document: Path | None,
    tables: Sequence[str],
    output: OutputFormat,
    invocation: Invocation,
    *,
    exit_code: bool,
) -> ExitCode:
    """Print the next commit of each table; one that cannot be planned is told, not raised."""
    config = invocation.load(document).config
    check_merges(config, tables)
    configure_logs(LogSettings(level=LogLevel.WARNING), invocation.redactor)
    found: dict[str, MergePlan | FrazilError | None] = {}
    with open_session(config) as session:
        lake = Lake(session, config.catalog.name)
        for mirror, settings in load_merges(lake, config, tables).items():
            try:
                found[mirror] = Merger(session, lake, settings).load_plan()
            except FrazilError as error:
                found[mirror] = error
    _print(found, output, invocation.redactor)
    return exit_code_of(tuple(found.values()), ask_for_work=exit_code)


def exit_code_of(
    found: Sequence[MergePlan | FrazilError | None], *, ask_for_work: bool
) -> ExitCode:
    """The gravest thing found; work counts only when it was asked for."""
    actions = [recovery_for(each).action for each in found if isinstance(each, FrazilError)]
    if any(action is not Action.NEVER for action in actions):
        return ExitCode.FAILED
    if actions:
        return ExitCode.NEEDS_A_PERSON
    has_work = any(each is not None for each in found)
    return ExitCode.DIFFERENCE if ask_for_work and has_work else ExitCode.DONE


def _print(
    found: Mapping[str, MergePlan | FrazilError | None], output: OutputFormat, redactor: Redactor
) -> None:
    if output is OutputFormat.JSON:
        write_json([_as_json(mirror, each, redactor) for mirror, each in found.items()])
        return
    for mirror, each in found.items():
        write_line(mirror)
        lines = _lines(each)
        width = max(len(label) for label, _ in lines)
        for label, text in lines:
            write_line(redactor.redact(f"  {label.ljust(width)}  {text}"))


def _lines(found: MergePlan | FrazilError | None) -> list[tuple[str, str]]:
    if found is None:
        return [("plan", "nothing: the mirror is up to date")]
    if isinstance(found, FrazilError):
        return [("problem", f"{found.code}: {found}")]
    return describe(found)


def _as_json(
    mirror: str, found: MergePlan | FrazilError | None, redactor: Redactor
) -> dict[str, object]:
    plan = problem = None
    if isinstance(found, FrazilError):
        problem = {"code": found.code, "message": redactor.redact(str(found))}
    elif found is not None:
        plan = {name: redactor.scrub(value) for name, value in plan_document(found).items()}
    return {"table": mirror, "plan": plan, "problem": problem}
