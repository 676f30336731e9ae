"""Which tables have a marker, by the configuration; pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from frazil.errors import ConfigError
from frazil.model.marker import MarkerRole
from frazil.model.table_name import TableName, parse_table_name
from frazil.pipeline.configured_source import configured_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.config import Config
    from frazil.config.models.tables import Table


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

    A name the configuration does not know is taken for a table of the catalog.
    """
    pairs = tuple(_configured(config))
    if table is None:
        return pairs
    named = [
        pair
        for pair in pairs
        if table in {str(marker_table.name) for marker_table in pair.marker_tables}
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
    if config.source is not None:
        listed = {table.mirror for table in config.tables}
        for each in configured_source(config).listed_tables():
            if each.mirror is None or each.mirror not in listed:
                yield _pair(each.changelog, each.mirror, config)


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
