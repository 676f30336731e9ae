"""Which tables have a marker, the markers as they are found, and what is wrong with them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from frazil.errors import ConfigError, FrazilError, MarkerLostError, RolledBackError
from frazil.ledger.rows import position_text
from frazil.ledger.table import Ledger
from frazil.mirror.table import nearest_marker
from frazil.model.marker import MarkerRole
from frazil.model.table_name import TableName, parse_table_name
from frazil.pipeline.configured_source import configured_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.clients.iceberg.lake import Lake
    from frazil.clients.iceberg.read.table_metadata import TableMetadata
    from frazil.clients.iceberg.table import LakeTable
    from frazil.config import Config
    from frazil.config.models.tables import Table
    from frazil.model.marker import Marker
    from frazil.sources.kind import ListedTable
    from frazil.telemetry.redaction import Redactor

HEADER = ("TABLE", "KIND", "ROLE", "POSITION", "BATCH", "SNAPSHOT", "MARKER", "PROBLEM")


class TableRole(StrEnum):
    """The role of a table in the pipeline."""

    CHANGELOG = "changelog"
    MIRROR = "mirror"
    LEDGER = "ledger"
    OTHER = "table"


@dataclass(frozen=True, slots=True)
class MarkerTable:
    """A table that has, or should have, a marker; without a role, the table says which it has."""

    kind: TableRole
    name: TableName
    role: MarkerRole | None


@dataclass(frozen=True, slots=True)
class Pair:
    """A changelog and its mirror; either may be unknown or missing."""

    changelog: MarkerTable | None
    mirror: MarkerTable | None

    @property
    def marker_tables(self) -> tuple[MarkerTable, ...]:
        """The known ones, in the order of the data flow."""
        return tuple(
            marker_table
            for marker_table in (self.changelog, self.mirror)
            if marker_table is not None
        )


def plan_pairs(config: Config, table: str | None = None) -> tuple[Pair, ...]:
    """The configured tables, or the pair to which this name belongs.

    The source's own name for it is one, too. A name the configuration does not know is taken for a
    table of the catalog.
    """
    pairs = tuple(_configured(config))
    if table is None:
        return pairs
    names = {table, *(each.changelog for each in _listed(config) if each.source == table)}
    named = [
        pair
        for pair in pairs
        if not names.isdisjoint(str(marker_table.name) for marker_table in pair.marker_tables)
    ]
    if named:
        return tuple(named)
    return (Pair(_other(table, config), None),)


def ledger_table(config: Config) -> MarkerTable:
    """The pipeline's ledger."""
    name = f"{config.ledger.namespace}.{config.ledger.table}"
    return MarkerTable(TableRole.LEDGER, _name(name, config), MarkerRole.INGEST)


def table_to_set(
    config: Config, table: str, role: MarkerRole
) -> tuple[MarkerTable, MarkerTable | None]:
    """The table whose marker of this role is meant, and for a mirror the changelog it counts in.

    A pair may be called by either of its names: the role says which table it is.
    """
    pair = plan_pairs(config, table)[0]
    if pair.changelog is not None and pair.changelog.kind is not TableRole.CHANGELOG:
        return MarkerTable(pair.changelog.kind, pair.changelog.name, role), None
    wanted = pair.mirror if role is MarkerRole.MERGE else pair.changelog
    if wanted is None:
        kind = TableRole.MIRROR if role is MarkerRole.MERGE else TableRole.CHANGELOG
        message = f"the configuration names no {kind} for {table}."
        raise ConfigError(message, next_step=f"name the {kind} itself")
    return wanted, pair.changelog if role is MarkerRole.MERGE else None


def _configured(config: Config) -> Iterator[Pair]:
    for table in config.tables:
        changelog = table.changelog or _derived_changelog(config, table)
        yield _pair(changelog, table.mirror, config)
    listed = {table.mirror for table in config.tables}
    for each in _listed(config):
        if each.mirror is None or each.mirror not in listed:
            yield _pair(each.changelog, each.mirror, config)


def _listed(config: Config) -> tuple[ListedTable, ...]:
    return () if config.source is None else configured_source(config).listed_tables()


def _pair(changelog: str | None, mirror: str | None, config: Config) -> Pair:
    return Pair(
        None
        if changelog is None
        else MarkerTable(TableRole.CHANGELOG, _name(changelog, config), MarkerRole.INGEST),
        None
        if mirror is None
        else MarkerTable(TableRole.MIRROR, _name(mirror, config), MarkerRole.MERGE),
    )


def _other(table: str, config: Config) -> MarkerTable:
    ledger = ledger_table(config)
    return (
        ledger
        if table == str(ledger.name)
        else MarkerTable(TableRole.OTHER, _name(table, config), None)
    )


def _name(text: str, config: Config) -> TableName:
    return parse_table_name(text, catalog=config.catalog.name)


def _derived_changelog(config: Config, table: Table) -> str | None:
    """The changelog's name by the templates, when the mirror's name determines the fields."""
    template = re.escape(f"{config.mirror.namespace}.{config.mirror.table}")
    for field in ("schema", "table"):
        # The first occurrence captures the field, any further one must repeat it.
        template = template.replace(rf"\{{{field}\}}", f"(?P<{field}>[^.]+)", 1)
        template = template.replace(rf"\{{{field}\}}", f"(?P={field})")
    found = re.fullmatch(template, table.mirror)
    name = f"{config.changelog.namespace}.{config.changelog.table}"
    if found is None or ("{schema}" in name and "schema" not in found.groupdict()):
        return None
    for field, value in found.groupdict().items():
        name = name.replace(f"{{{field}}}", value)
    return name


@dataclass(frozen=True, slots=True)
class MarkerReport:
    """One marker; ``recoverable`` is the one of the state that is there, if that is known."""

    marker_table: MarkerTable
    role: MarkerRole | None
    marker: Marker | None = None
    problem: FrazilError | None = None
    recoverable: Marker | None = None

    @property
    def validity(self) -> str:
        """A short description."""
        if self.problem is not None:
            return "unknown" if self.marker is None else "not valid"
        return "none" if self.marker is None else "valid"

    @property
    def position(self) -> str:
        """As text; a dash for none."""
        # A ledger that only holds notes has an empty one.
        return "-" if self.marker is None else position_text(self.marker.position) or "-"


def load_reports(lake: Lake, config: Config, table: str | None) -> list[MarkerReport]:
    """Every marker of the pipeline, or those of one table; a problem is reported, not raised."""
    marker_tables = [
        marker_table for pair in plan_pairs(config, table) for marker_table in pair.marker_tables
    ]
    ledger = ledger_table(config)
    if table is None and config.source is not None:
        marker_tables += _captured(
            lake, config, {str(marker_table.name) for marker_table in marker_tables}
        )
    if ledger not in marker_tables:
        marker_tables.append(ledger)
    return [report for marker_table in marker_tables for report in reports_of(lake, marker_table)]


def reports_of(lake: Lake, marker_table: MarkerTable) -> list[MarkerReport]:
    """The markers of one table; a failure to open it is reported, not raised."""
    try:
        table = lake.open(marker_table.name)
        state = table.load_state()
    except FrazilError as error:
        return [MarkerReport(marker_table, marker_table.role, problem=error)]
    if marker_table.role is not None:
        return [load_report(table, state, marker_table, marker_table.role)]
    found = [role for role in MarkerRole if role.property_name in state.properties]
    return [load_report(table, state, marker_table, role) for role in found or [MarkerRole.INGEST]]


def load_report(
    table: LakeTable, state: TableMetadata, marker_table: MarkerTable, role: MarkerRole
) -> MarkerReport:
    """The marker of one role on an opened table."""
    marker = None
    try:
        marker = state.marker(role, table=str(marker_table.name))
        table.load_marker(role)
    except (MarkerLostError, RolledBackError) as error:
        return MarkerReport(
            marker_table, role, marker, error, _recoverable(table, role, marker, error)
        )
    except FrazilError as error:
        return MarkerReport(marker_table, role, marker, error)
    return MarkerReport(marker_table, role, marker)


def _recoverable(
    table: LakeTable, role: MarkerRole, marker: Marker | None, error: FrazilError
) -> Marker | None:
    # Only a mirror may go on from an older state: merging twice is harmless.
    nearest = nearest_marker(table.iter_with_expired(), role) if role is MarkerRole.MERGE else None
    if nearest is None and _is_unproven(error):
        # Nothing indicates a rollback; an operator who knows that there was none may go on.
        return marker
    return nearest


def _is_unproven(problem: FrazilError | None) -> bool:
    return isinstance(problem, RolledBackError) and not problem.is_proven


def report_row(report: MarkerReport, redactor: Redactor) -> tuple[str, ...]:
    """One line of text."""
    marker = report.marker
    writer = None if marker is None else marker.snapshot
    return (
        str(report.marker_table.name),
        report.marker_table.kind.value,
        "-" if report.role is None else report.role.value,
        report.position,
        "-" if marker is None else marker.batch,
        "-" if writer is None else str(writer.id),
        report.validity,
        redactor.redact(_problem(report)),
    )


def report_json(report: MarkerReport, redactor: Redactor) -> dict[str, object]:
    """One JSON object."""
    marker = report.marker
    problem, nearest = report.problem, report.recoverable
    return {
        "table": str(report.marker_table.name),
        "kind": report.marker_table.kind.value,
        "role": None if report.role is None else report.role.value,
        "validity": report.validity,
        "marker": None if marker is None else _marker_json(marker),
        "recoverable": None if nearest is None else _marker_json(nearest),
        "problem": None
        if problem is None
        else {"code": problem.code, "message": redactor.redact(str(problem))},
    }


def _captured(lake: Lake, config: Config, known: set[str]) -> list[MarkerTable]:
    """Tables that the source chose: only the ledger knows them."""
    try:
        table_states = Ledger.open(lake, ledger_table(config).name).table_states()
    except FrazilError:
        # The ledger's own line says what is wrong with it.
        return []
    names = [each.table for each in table_states if each.table not in known]
    catalog = config.catalog.name
    return [
        MarkerTable(TableRole.OTHER, parse_table_name(name, catalog=catalog), None)
        for name in names
    ]


def _problem(report: MarkerReport) -> str:
    if report.problem is None:
        return ""
    return f"{report.problem.code}: {report.problem}{_offer(report)}"


def _offer(report: MarkerReport) -> str:
    if report.recoverable is None:
        return ""
    position = position_text(report.recoverable.position)
    if _is_unproven(report.problem):
        return f" If it was not rolled back, its current state is that of {position}."
    return f" The state that is there is that of {position}."


def _marker_json(marker: Marker) -> dict[str, object]:
    snapshot = marker.snapshot
    return {
        "position": marker.position if isinstance(marker.position, str) else dict(marker.position),
        "batch": marker.batch,
        "pipeline": marker.pipeline,
        "source": marker.source,
        "epoch": marker.epoch,
        "sequence": marker.sequence,
        "truncated": marker.truncated,
        # As text, because many readers of JSON round such numbers.
        "snapshot": None if snapshot is None else str(snapshot.id),
    }
