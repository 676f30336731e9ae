"""The verb ``check``: every problem before anything starts, each with its fix."""

from __future__ import annotations

import sys
from itertools import groupby
from typing import TYPE_CHECKING

from frazil import errors
from frazil.cli.exit_codes import ExitCode
from frazil.cli.output import OutputFormat, write_json, write_line, write_table
from frazil.cli.verbs.position.reports import (
    MarkerTable,
    TableRole,
    ledger_table,
    plan_pairs,
    reports_of,
)
from frazil.clients.iceberg.lake import Lake
from frazil.clients.spark.session import open_session
from frazil.model.marker import MarkerRole
from frazil.model.readers import FILES_FORMAT, VECTORS_FORMAT
from frazil.pipeline.checks import check_source, format_problem, reader_problems, try_writing
from frazil.pipeline.tables.captured_names import CapturedNames
from frazil.sources.findings import CheckedItem, Findings, Severity, problem_of, stops, warns
from frazil.telemetry.progress import doing

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from frazil.cli.invocation import Invocation
    from frazil.cli.verbs.position.reports import MarkerReport
    from frazil.config import Config
    from frazil.model.readers import Reader
    from frazil.pipeline.checks import SourceFindings
    from frazil.pipeline.tables.captured_names import Named
    from frazil.sources.findings import Problem
    from frazil.telemetry.redaction import Redactor

_NO_ANSWER = (errors.CatalogError, errors.PermissionError)
_ADVICE = "Check catalog and storage in the configuration, and that the catalog runs."

# Amazon's clients send checksums with every upload, which not every store understands.
_CHECKSUMS = (
    " A store that does not know Amazon's checksums needs "
    "AWS_REQUEST_CHECKSUM_CALCULATION=when_required in the environment."
)


def run_checks(invocation: Invocation, readers: Sequence[Reader] = ()) -> ExitCode:
    """Check the source, print that, then the lake, which waits for Spark."""
    config = invocation.load_quietly()
    redactor = invocation.redactor
    is_table = invocation.output is OutputFormat.TABLE
    with doing("checking the source"):
        source = check_source(config)
    if is_table and config.source is not None:
        _print(source, "SOURCE", redactor)
    lake = check_lake(config, source, readers)
    parts = (source, lake)
    if is_table:
        _print(lake, "LAKE", redactor)
        write_line(summary(parts))
    else:
        write_json(findings_json(parts, redactor))
    return exit_code_of(parts)


def exit_code_of(parts: Sequence[Findings]) -> ExitCode:
    """1 when something must be fixed; 5 when access was denied."""
    if any(isinstance(part.error, errors.PermissionError) for part in parts):
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


def check_lake(config: Config, source: SourceFindings, readers: Sequence[Reader] = ()) -> Findings:
    """Check the lake; an error that prevents the check is reported, not raised."""
    try:
        with open_session(config) as session, doing("checking the lake"):
            return inspect_lake(Lake(session, config.catalog.name), config, source, readers)
    except errors.FrazilError as error:
        return _closed(error)


def inspect_lake(
    lake: Lake, config: Config, source: SourceFindings, readers: Sequence[Reader] = ()
) -> Findings:
    """The same, in a lake that is open; ``source`` has the tables that the source chose."""
    # One answer proves that the catalog is there; without it, no table needs to be loaded.
    ledger = reports_of(lake, ledger_table(config))
    failed = next((each.problem for each in ledger if isinstance(each.problem, _NO_ANSWER)), None)
    if failed is not None:
        return _closed(failed)
    seen = [_catalog(config)]
    problems: list[Problem] = []
    marker_tables = _marker_tables(config, source.names)
    reports = [
        *ledger,
        *(each for marker_table in marker_tables for each in reports_of(lake, marker_table)),
    ]
    judged = (_judged(report, config, source.not_made) for report in reports)
    for found in (_warehouse(lake, config), *judged):
        if isinstance(found, CheckedItem):
            seen.append(found)
        elif found is not None:
            problems.append(found)
    problems += reader_problems(config, readers, _formats(lake, reports) if readers else {})
    return Findings(checked=tuple(seen), problems=tuple(problems))


def _closed(error: errors.FrazilError) -> Findings:
    advice = _ADVICE if isinstance(error, _NO_ANSWER) else None
    return Findings(problems=(problem_of(error, advice=advice),), error=error)


def _catalog(config: Config) -> CheckedItem:
    return CheckedItem(
        "catalog", f"{config.catalog.name}, kind {config.catalog.kind.value}, answers"
    )


def _warehouse(lake: Lake, config: Config) -> CheckedItem | Problem:
    warehouse = config.catalog.warehouse or "the catalog's own"
    wanted = config.mirror.format_version
    try:
        made = try_writing(lake, config, format_version=wanted)
    except errors.FrazilError as error:
        if wanted == VECTORS_FORMAT and _takes_older_format(lake, config, error):
            return stops(
                f"The catalog takes no table of format {wanted}, and takes one of format "
                f"{FILES_FORMAT}. Set mirror.format_version: {FILES_FORMAT}."
            )
        # Of a table that only served to try.
        error.table = None
        advice = f"The warehouse, {warehouse}, cannot be written to. {_ADVICE}"
        if config.storage.s3.endpoint is not None:
            advice += _CHECKSUMS
        return problem_of(error, advice=advice)
    differs = format_problem(wanted=wanted, made=made)
    if differs is not None:
        return differs
    return CheckedItem("warehouse", f"{warehouse}: a table was created, written, read and removed")


def _takes_older_format(lake: Lake, config: Config, error: errors.FrazilError) -> bool:
    """Whether it was the format that a table could not be made for."""
    if isinstance(error, (errors.PermissionError, errors.StorageError)):
        return False
    try:
        try_writing(lake, config, format_version=FILES_FORMAT)
    except errors.FrazilError:
        return False
    return True


def _formats(lake: Lake, reports: Sequence[MarkerReport]) -> dict[str, int]:
    """The formats of the mirrors that are there."""
    return {
        str(report.marker_table.name): lake.open(report.marker_table.name)
        .load_state()
        .format_version
        for report in reports
        if report.marker_table.kind is TableRole.MIRROR and report.problem is None
    }


def _marker_tables(config: Config, names: Mapping[str, Named]) -> Iterator[MarkerTable]:
    """Every changelog and mirror, the captured ones first, each once."""
    captured = [
        MarkerTable(kind, name, role)
        for found in names.values()
        if isinstance(found, CapturedNames)
        for kind, name, role in (
            (TableRole.CHANGELOG, found.changelog, MarkerRole.INGEST),
            (TableRole.MIRROR, found.mirror, MarkerRole.MERGE),
        )
        if name is not None
    ]
    listed = [marker_table for pair in plan_pairs(config) for marker_table in pair.marker_tables]
    yield from {
        str(marker_table.name): marker_table for marker_table in [*listed, *captured]
    }.values()


def _judged(
    report: MarkerReport, config: Config, not_made: Collection[str]
) -> CheckedItem | Problem | None:
    name, kind, problem = str(report.marker_table.name), report.marker_table.kind, report.problem
    if isinstance(problem, errors.TableNotFoundError):
        # The check of the source has reported why no run creates it.
        return None if name in not_made else _missing(report, config)
    if problem is not None:
        return problem_of(problem)
    if report.marker is None:
        return CheckedItem(name, f"{kind} is there and empty")
    if report.marker.pipeline != config.pipeline:
        return warns(
            f"The {kind} {name} was last written by the pipeline {report.marker.pipeline}: two "
            "pipelines must not share a table.",
            table=name,
        )
    return CheckedItem(name, f"{kind} is there, at {report.position}")


def _missing(report: MarkerReport, config: Config) -> CheckedItem | Problem | None:
    name, kind = str(report.marker_table.name), report.marker_table.kind
    if config.source is not None or kind is TableRole.MIRROR:
        return CheckedItem(name, f"{kind} is not there yet: the first run creates it")
    if kind is TableRole.LEDGER:
        # Merges alone keep no ledger.
        return None
    return stops(
        f"The {kind} {name} is not in the catalog, and without a source nothing creates it.",
        table=name,
    )
