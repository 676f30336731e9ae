"""The verb ``check``: every problem before anything starts, each with its fix."""

from __future__ import annotations

import sys
from itertools import groupby
from typing import TYPE_CHECKING

from frazil.cli.exit_codes import ExitCode
from frazil.cli.output import OutputFormat, write_json, write_line, write_table
from frazil.cli.verbs.lake_check import check_lake
from frazil.errors import PermissionError  # noqa: A004 - the published name of this error
from frazil.model.policy import LogLevel
from frazil.pipeline.checks import check_source
from frazil.sources.findings import Severity
from frazil.telemetry.logs import LogSettings, configure_logs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from frazil.cli.invocation import Invocation
    from frazil.sources.findings import Findings, Problem
    from frazil.telemetry.redaction import Redactor


def run_checks(document: Path | None, output: OutputFormat, invocation: Invocation) -> ExitCode:
    """Check the source, print that, then the lake, which waits for Spark."""
    config = invocation.load(document).config
    configure_logs(LogSettings(level=LogLevel.WARNING), invocation.redactor)
    redactor = invocation.redactor
    is_table = output is OutputFormat.TABLE
    source = check_source(config)
    if is_table and config.source is not None:
        _print(source, "SOURCE", redactor)
    lake = check_lake(config, source)
    parts = (source, lake)
    if is_table:
        _print(lake, "LAKE", redactor)
        write_line(summary(parts))
    else:
        write_json(findings_json(parts, redactor))
    return exit_code_of(parts)


def exit_code_of(parts: Sequence[Findings]) -> ExitCode:
    """1 when something must be fixed; 5 when access was denied."""
    if any(isinstance(part.error, PermissionError) for part in parts):
        return ExitCode.PERMISSION
    return ExitCode.FAILED if any(part.must_be_fixed for part in parts) else ExitCode.DONE


def summary(parts: Sequence[Findings]) -> str:
    """The last line: what is left to do."""
    stops = sum(part.must_be_fixed for part in parts)
    warns = sum(len(part.problems) for part in parts) - stops
    must = "nothing must be fixed" if not stops else f"{stops} must be fixed"
    return must if not warns else f"{must}, {warns} to know of"


def findings_json(parts: Sequence[Findings], redactor: Redactor) -> dict[str, object]:
    """All findings as JSON."""
    return {
        "problems": [_problem_json(each, redactor) for part in parts for each in part.problems],
        "looked_at": [
            {
                "about": each.about,
                "outcome": each.outcome.value,
                "found": redactor.redact(each.found),
            }
            for part in parts
            for each in part.checked
        ],
    }


def _problem_json(problem: Problem, redactor: Redactor) -> dict[str, object]:
    return {
        "severity": problem.severity.value,
        "sentence": redactor.redact(problem.sentence),
        "sql": [redactor.redact(line) for line in problem.sql],
        "table": problem.table,
    }


def _print(findings: Findings, part: str, redactor: Redactor) -> None:
    rows = [[redactor.redact(cell) for cell in row] for row in table_rows(findings)]
    write_table(rows, header=("STATE", part, "FOUND"))
    write_line()
    sys.stdout.flush()


def table_rows(findings: Findings) -> Iterator[tuple[str, str, str]]:
    """A line for each item without a problem, then one for each problem and each line of its fix.

    Problems that one statement fixes are listed above it together.
    """
    for each in findings.checked:
        yield each.outcome.value, each.about, each.found
    for severity in Severity:
        problems = [each for each in findings.problems if each.severity is severity]
        for sql, alike in groupby(problems, key=lambda problem: problem.sql):
            yield from ((severity.value, each.table or "", each.sentence) for each in alike)
            yield from (("", "", f"  {line}") for line in sql)
