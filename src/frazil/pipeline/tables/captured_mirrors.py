"""Mirrors of tables that this pipeline captures: their changelogs know the key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.changelog.table import ChangelogTable
from frazil.errors import TableNotFoundError
from frazil.ingest.planning.column_numbers import decode_column_numbers
from frazil.ledger.table import Ledger
from frazil.model.table_facts import COLUMNS_PROPERTY
from frazil.model.table_name import parse_table_name
from frazil.pipeline.tables.captured_names import CapturedNames, captured_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from frazil.clients.iceberg.lake import Lake
    from frazil.config import Config
    from frazil.config.models.running import DeadLetters, LedgerSection
    from frazil.model.table_name import TableName


@dataclass(frozen=True, slots=True)
class CapturedMirror:
    """The changelog a mirror is made of, and the names that its key columns have now."""

    source: str
    changelog: TableName
    key: tuple[str, ...]


def ledger_name(config: Config) -> TableName:
    """The pipeline's ledger."""
    return _own_table(config, config.ledger)


def dead_letters_name(config: Config) -> TableName:
    """The pipeline's dead letters."""
    return _own_table(config, config.dead_letters)


def _own_table(config: Config, section: DeadLetters | LedgerSection) -> TableName:
    return parse_table_name(f"{section.namespace}.{section.table}", catalog=config.catalog.name)


@dataclass(frozen=True, slots=True)
class CapturedTables:
    """The mirrors of captured tables by name, and the tables at the source that have none.

    These have only a changelog, or are tables of records.
    """

    mirrors: Mapping[str, CapturedMirror]
    without: Mapping[str, TableName]

    @property
    def changelogs(self) -> Mapping[str, TableName]:
        """The table that rows of each are appended to."""
        merged = {each.source: each.changelog for each in self.mirrors.values()}
        return {**self.without, **merged}


def load_captured_mirrors(lake: Lake, config: Config) -> Mapping[str, CapturedMirror]:
    """Every captured table that has a key, by its mirror's name; reads ledger and tables."""
    return load_captured_tables(lake, config).mirrors


def load_captured_tables(lake: Lake, config: Config) -> CapturedTables:
    """Every captured table; reads the ledger and the tables."""
    mirrors, without = {}, {}
    for source, names in _load_named(lake, config).items():
        mirror = load_captured_mirror(lake, source, names)
        if mirror is None:
            without[source] = names.changelog
        else:
            mirrors[str(names.mirror)] = mirror
    return CapturedTables(mirrors, without)


def _load_named(lake: Lake, config: Config) -> Mapping[str, CapturedNames]:
    if config.source is None:
        return {}
    try:
        ledger = Ledger.open(lake, ledger_name(config))
    except TableNotFoundError:
        return {}
    table_states = {each.table: each for each in ledger.table_states()}
    named = captured_names(config, table_states, table_states).items()
    return {source: names for source, names in named if isinstance(names, CapturedNames)}


def load_captured_mirror(lake: Lake, source: str, names: CapturedNames) -> CapturedMirror | None:
    """One of them; None while nothing was captured, or if the table has no key or no mirror."""
    if names.mirror is None:
        return None
    try:
        changelog = ChangelogTable.open(lake, names.changelog)
    except TableNotFoundError:
        return None
    version = changelog.table.load_version()
    columns = version.state.properties.get(COLUMNS_PROPERTY)
    if columns is None or version.state.head is None:
        return None
    known = decode_column_numbers(columns, table=str(names.changelog))
    fields = {each.id: each.name for each in version.schema.fields}
    key = tuple(fields[known.live[number].field] for number in known.key)
    return CapturedMirror(source, names.changelog, key) if key else None
