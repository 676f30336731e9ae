"""The lake's part of ``check``: the catalog answers, and the tables in it can be gone on with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil import errors
from frazil.cli.verbs.position.markers import MarkerTable, TableRole, ledger_place, plan_pairs
from frazil.cli.verbs.position.reports import reports_of
from frazil.clients.iceberg.lake import Lake
from frazil.clients.spark.session import open_session
from frazil.model.marker import MarkerRole
from frazil.pipeline.checks.warehouse_trial import try_writing
from frazil.pipeline.tables.captured_names import CapturedNames
from frazil.sources.findings import Findings, LookedAt, problem_of, stops, warns

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from frazil.cli.verbs.position.reports import MarkerReport
    from frazil.config import Config
    from frazil.pipeline.checks.source_check import SourceFindings
    from frazil.pipeline.tables.captured_names import Named
    from frazil.sources.findings import Problem

_NO_ANSWER = (errors.CatalogError, errors.PermissionError)
_ADVICE = "Look at catalog and storage in the configuration, and whether the catalog runs."

# Amazon's clients send checksums with every upload, which not every store understands.
_CHECKSUMS = (
    " A store that does not know Amazon's checksums needs "
    "AWS_REQUEST_CHECKSUM_CALCULATION=when_required in the environment."
)


def check_lake(config: Config, source: SourceFindings) -> Findings:
    """Everything about the lake; what keeps us from looking is told, not raised."""
    try:
        with open_session(config) as session:
            return look_into(Lake(session, config.catalog.name), config, source)
    except errors.FrazilError as error:
        return _closed(error)


def look_into(lake: Lake, config: Config, source: SourceFindings) -> Findings:
    """The same, in a lake that is open; ``source`` has the tables that the source chose."""
    # One answer tells that the catalog is there; without it, no table need be asked for.
    ledger = reports_of(lake, ledger_place(config))
    failed = next((each.problem for each in ledger if isinstance(each.problem, _NO_ANSWER)), None)
    if failed is not None:
        return _closed(failed)
    seen = [_catalog(config)]
    problems: list[Problem] = []
    places = _places(config, source.names)
    reports = [*ledger, *(each for place in places for each in reports_of(lake, place))]
    judged = (_judged(report, config, source.not_made) for report in reports)
    for found in (_warehouse(lake, config), *judged):
        if isinstance(found, LookedAt):
            seen.append(found)
        elif found is not None:
            problems.append(found)
    return Findings(looked_at=tuple(seen), problems=tuple(problems))


def _closed(error: errors.FrazilError) -> Findings:
    advice = _ADVICE if isinstance(error, _NO_ANSWER) else None
    return Findings(problems=(problem_of(error, advice=advice),), error=error)


def _catalog(config: Config) -> LookedAt:
    return LookedAt("catalog", f"{config.catalog.name}, kind {config.catalog.kind.value}, answers")


def _warehouse(lake: Lake, config: Config) -> LookedAt | Problem:
    place = config.catalog.warehouse or "the catalog's own"
    try:
        try_writing(lake, config)
    except errors.FrazilError as error:
        # Of a table that only served to try.
        error.table = None
        advice = f"The warehouse, {place}, cannot be written to. {_ADVICE}"
        if config.storage.s3.endpoint is not None:
            advice += _CHECKSUMS
        return problem_of(error, advice=advice)
    return LookedAt("warehouse", f"{place}: a table was created, written, read and removed")


def _places(config: Config, names: Mapping[str, Named]) -> Iterator[MarkerTable]:
    """Every changelog and mirror, the captured ones first, each once."""
    captured = [
        place
        for found in names.values()
        if isinstance(found, CapturedNames)
        for place in (
            MarkerTable(TableRole.CHANGELOG, found.changelog, MarkerRole.INGEST),
            MarkerTable(TableRole.MIRROR, found.mirror, MarkerRole.MERGE),
        )
    ]
    listed = [place for pair in plan_pairs(config) for place in pair.places]
    yield from {str(place.name): place for place in [*listed, *captured]}.values()


def _judged(
    report: MarkerReport, config: Config, not_made: Collection[str]
) -> LookedAt | Problem | None:
    name, kind, problem = str(report.place.name), report.place.kind, report.problem
    if isinstance(problem, errors.TableNotFoundError):
        # Why no run makes it, the source's part has said.
        return None if name in not_made else _missing(report, config)
    if problem is not None:
        return problem_of(problem)
    if report.marker is None:
        return LookedAt(name, f"{kind} is there and empty")
    if report.marker.pipeline != config.pipeline:
        return warns(
            f"The {kind} {name} was last written by the pipeline {report.marker.pipeline}: two "
            "pipelines must not share a table.",
            table=name,
        )
    return LookedAt(name, f"{kind} is there, at {report.position}")


def _missing(report: MarkerReport, config: Config) -> LookedAt | Problem | None:
    name, kind = str(report.place.name), report.place.kind
    if config.source is not None or kind is TableRole.MIRROR:
        return LookedAt(name, f"{kind} is not there yet: the first run creates it")
    if kind is TableRole.LEDGER:
        # Merges alone keep no book.
        return None
    return stops(
        f"The {kind} {name} is not in the catalog, and without a source nobody creates it.",
        table=name,
    )
