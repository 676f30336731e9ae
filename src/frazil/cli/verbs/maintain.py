"""The verb ``maintain``: look after tables, once or until stopped, or show what that would do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.cli.exit_codes import ExitCode
from frazil.cli.output import OutputFormat, write_json, write_table
from frazil.cli.process.role import ProcessRole, run_role
from frazil.cli.results.upkeep_results import (
    HEADER,
    RESULT_HEADER,
    health_json,
    health_row,
    job_rows,
    jobs_json,
)
from frazil.clients.spark.session import open_session
from frazil.errors import ConfigError, FrazilError
from frazil.pipeline.build_run import MAINTAIN_ROLE, build_maintain_run
from frazil.pipeline.maintenance import PipelineUpkeep

if TYPE_CHECKING:
    from frazil.cli.invocation import Invocation
    from frazil.model.policy import JobKind
    from frazil.pipeline.build_run import PipelineRun, RunContext


@dataclass(frozen=True, slots=True)
class MaintainRequest:
    """What to look after: tables by name and jobs by kind, all without any."""

    tables: tuple[str, ...] = ()
    kinds: tuple[JobKind, ...] = ()
    once: bool = False
    dry_run: bool = False


def maintain_tables(request: MaintainRequest, invocation: Invocation) -> ExitCode:
    """Do it, or show it."""
    if request.dry_run:
        return _show(request, invocation)
    loaded = invocation.load(invocation.document)
    if not loaded.config.maintenance.enabled:
        message = "maintenance.enabled is false: every table is left as it is."
        raise ConfigError(message, next_step="frazil maintain --dry-run shows what it would do")

    def build(context: RunContext) -> PipelineRun:
        return build_maintain_run(context, request.tables, request.kinds)

    def print_results(run: PipelineRun) -> None:
        found = run.board.now().upkeep
        if invocation.output is OutputFormat.JSON:
            write_json([health_json(each) for each in found])
        else:
            write_table([health_row(each) for each in found], header=RESULT_HEADER)

    role = ProcessRole(MAINTAIN_ROLE, build, print_results)
    return run_role(role, invocation.document, invocation, loaded, once=request.once)


def _show(request: MaintainRequest, invocation: Invocation) -> ExitCode:
    """Print every table and its jobs; nothing is changed."""
    config = invocation.load_quietly()
    problems: list[FrazilError] = []
    with open_session(config) as session:
        upkeep = PipelineUpkeep(session, config, tables=request.tables, kinds=request.kinds)
        plans = []
        for table in upkeep.load_tables():
            try:
                plan = upkeep.load_plan(table)
            except FrazilError as error:
                problems.append(error)
                continue
            if plan is not None:
                plans.append(plan)
    redactor = invocation.redactor
    if invocation.output is OutputFormat.JSON:
        document = [jobs_json(each) for each in plans]
        write_json([redactor.scrub(each) for each in document])
    else:
        rows = [row for each in plans for row in job_rows(each)]
        rows += [(each.table or "", "problem", f"{each.code}: {each}") for each in problems]
        write_table([tuple(map(redactor.redact, row)) for row in rows], header=HEADER)
    return ExitCode.FAILED if problems else ExitCode.DONE
