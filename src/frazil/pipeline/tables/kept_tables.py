"""From the document to upkeep: which tables are looked after, and how."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from frazil.config import table_settings
from frazil.errors import ConfigError
from frazil.maintain.facts import KeptRole
from frazil.maintain.settings import CompactSettings, UpkeepSettings
from frazil.maintain.table_set import KeptTable
from frazil.model.policy import Forever
from frazil.model.table_name import parse_table_name
from frazil.pipeline.tables.captured_mirrors import (
    dead_letters_name,
    ledger_name,
    load_captured_tables,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from frazil.clients.iceberg.lake import Lake
    from frazil.config import Config
    from frazil.config.models.maintenance import Maintenance
    from frazil.model.table_name import TableName


def load_kept_tables(
    lake: Lake, config: Config, chosen: Sequence[str] = ()
) -> tuple[KeptTable, ...]:
    """Every table that the pipeline writes; reads the ledger.

    Tables that another writer fills are recognised later, by their markers. Raises ConfigError for
    a chosen name that is none of them.
    """
    captured = load_captured_tables(lake, config)
    catalog = config.catalog.name
    pairs = [
        (each.mirror, parse_table_name(each.changelog, catalog=catalog))
        for each in config.tables
        if each.changelog is not None and each.key
    ]
    pairs += [(mirror, each.changelog) for mirror, each in captured.mirrors.items()]
    found = _mirrored(config, dict(pairs))
    found += [
        KeptTable(
            name=name,
            role=KeptRole.RECORDS,
            settings=upkeep_settings(_maintenance(config, str(name)), KeptRole.RECORDS),
        )
        for name in captured.without.values()
    ]
    if config.source is not None:
        own = ((ledger_name, KeptRole.LEDGER), (dead_letters_name, KeptRole.DEAD_LETTERS))
        found += [
            KeptTable(
                name=name(config), role=role, settings=upkeep_settings(config.maintenance, role)
            )
            for name, role in own
        ]
    return _chosen(found, chosen)


def _mirrored(config: Config, changelogs: dict[str, TableName]) -> list[KeptTable]:
    catalog = config.catalog.name
    readers: dict[TableName, list[TableName]] = {}
    settings: dict[TableName, Maintenance] = {}
    found = []
    for mirror, changelog in changelogs.items():
        maintenance = _maintenance(config, mirror)
        name = parse_table_name(mirror, catalog=catalog)
        role = KeptRole.MIRROR
        found.append(KeptTable(name=name, role=role, settings=upkeep_settings(maintenance, role)))
        readers.setdefault(changelog, []).append(name)
        settings.setdefault(changelog, maintenance)
    found += [
        KeptTable(
            name=changelog,
            role=KeptRole.CHANGELOG,
            settings=upkeep_settings(settings[changelog], KeptRole.CHANGELOG),
            mirrors=tuple(mirrors),
        )
        for changelog, mirrors in readers.items()
    ]
    return found


def _maintenance(config: Config, mirror: str) -> Maintenance:
    return table_settings(config, mirror).maintenance


def upkeep_settings(maintenance: Maintenance, role: KeptRole) -> UpkeepSettings:
    """What the document says about tables of this role."""
    compact, snapshots = maintenance.compact, maintenance.snapshots
    is_compacted = role is not KeptRole.CHANGELOG or maintenance.changelog.compact
    retain: timedelta | Forever = Forever.FOREVER
    if role is KeptRole.CHANGELOG:
        retain = maintenance.changelog.retain
    elif role is KeptRole.LEDGER:
        retain = maintenance.ledger.retain
    return UpkeepSettings(
        enabled=maintenance.enabled,
        compact=CompactSettings(
            small_bytes=compact.small_file,
            min_files=compact.min_files,
            dead_ratio=compact.dead_rows / 100,
            target_bytes=compact.target_file_size,
            max_bytes=compact.max_bytes,
            order=compact.sort,
        )
        if is_compacted
        else None,
        keep_snapshots=snapshots.keep,
        min_snapshots=snapshots.min,
        max_manifests=maintenance.manifests.max,
        retain=None if isinstance(retain, Forever) else retain,
        orphan_age=maintenance.orphans.older_than,
        orphan_interval=maintenance.orphans.interval,
    )


def _chosen(found: Sequence[KeptTable], chosen: Sequence[str]) -> tuple[KeptTable, ...]:
    known = {str(each.name) for each in found}
    for name in chosen:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else "."
            message = f"--table: {name!r} is not among the tables of the pipeline{hint}"
            raise ConfigError(message, next_step="frazil maintain --dry-run lists them")
    return tuple(each for each in found if not chosen or str(each.name) in chosen)
