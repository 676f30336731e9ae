"""The check of the source before a run: before Spark starts, and before anything is created."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.cli.exit_codes import ExitCode
from frazil.cli.output import write_note
from frazil.errors import FrazilError
from frazil.hooks import SystemClock, SystemRandomness
from frazil.pipeline.checks import check_readiness
from frazil.pipeline.next_step import RetryAfter, plan_step
from frazil.pipeline.tables.merge_settings import retry_policy

if TYPE_CHECKING:
    from frazil.config import Config
    from frazil.sources.findings import Findings
    from frazil.telemetry.redaction import Redactor


def refuse_unready(config: Config, redactor: Redactor, *, once: bool) -> ExitCode | None:
    """Print why a run cannot capture anything and return its exit code; None to go on.

    Raises an error that only an operator can fix. A transient one is retried for a while with
    ``once``; otherwise it is reported and the run begins, because it tries again itself.
    """
    found = _check_source(config, redactor, once=once)
    if found is None or not found.must_be_fixed:
        return None
    write_note("The source is not ready, and nothing was started or created:")
    for problem in found.problems:
        write_note(redactor.redact(f"  {problem.sentence}"))
        for line in problem.sql:
            write_note(redactor.redact(f"    {line}"))
    return ExitCode.FAILED


def _check_source(config: Config, redactor: Redactor, *, once: bool) -> Findings | None:
    clock, randomness, failures = SystemClock(), SystemRandomness(), 0
    while True:
        try:
            return check_readiness(config)
        except FrazilError as error:
            failures += 1
            step = plan_step(
                error,
                failures=failures,
                retry=retry_policy(config),
                randomness=randomness,
                once=once,
            )
            if not isinstance(step, RetryAfter):
                raise
            write_note(redactor.redact(f"{error.code}: {error}"))
            if not once:
                return None
        clock.sleep(step.seconds)
