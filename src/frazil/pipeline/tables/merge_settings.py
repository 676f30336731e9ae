"""From the document to merges: which tables are merged, and how."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from types import MappingProxyType
from typing import TYPE_CHECKING

from frazil.changelog.layout import CdcColumns
from frazil.clients.iceberg.commit.retrying import RetryPolicy
from frazil.config import table_settings
from frazil.config.models.tables import Compression
from frazil.errors import ConfigError
from frazil.merge.planning.settings import IndexSettings, MergeSettings, WriteSettings
from frazil.model.table_name import parse_table_name
from frazil.pipeline.tables.captured_mirrors import load_captured_mirrors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from frazil.clients.iceberg.lake import Lake
    from frazil.config import Config, TableSettings
    from frazil.config.models.tables import Table
    from frazil.pipeline.tables.captured_mirrors import CapturedMirror

NOTHING_CAPTURED: Mapping[str, CapturedMirror] = MappingProxyType({})

# The document speaks as Parquet's users do, tables as Iceberg does. Hadoop's framing of LZ4, which
# Iceberg calls by the plain name, is read by few.
_ICEBERG_CODECS = {Compression.NONE: "uncompressed", Compression.LZ4: "lz4_raw"}


def merge_tables(
    config: Config,
    chosen: Sequence[str] = (),
    *,
    captured: Mapping[str, CapturedMirror] = NOTHING_CAPTURED,
) -> tuple[str, ...]:
    """The mirrors to merge, in the document's order; those chosen, when any are.

    ``captured`` are those that the pipeline itself fills. A table may be chosen by the name of its
    mirror or of its changelog. Raises ConfigError for a name that is none of them, and for a
    document that names no table to merge.
    """
    listed = {table.mirror: str(table.changelog) for table in config.tables if _is_mergeable(table)}
    listed |= {mirror: str(each.changelog) for mirror, each in captured.items()}
    if not listed:
        raise _nothing_to_merge(config)
    if not chosen:
        return tuple(listed)
    by_any_name = {changelog: mirror for mirror, changelog in listed.items()}
    by_any_name |= {mirror: mirror for mirror in listed}
    for name in chosen:
        if name not in by_any_name:
            raise _unknown(name, by_any_name)
    wanted = {by_any_name[name] for name in chosen}
    return tuple(mirror for mirror in listed if mirror in wanted)


def check_merges(config: Config, chosen: Sequence[str]) -> None:
    """Raise mistakes of the configuration now, not after the seconds that Spark needs to start."""
    if config.source is None:
        for mirror in merge_tables(config, chosen):
            merge_settings(config, mirror)


def load_merges(lake: Lake, config: Config, chosen: Sequence[str]) -> dict[str, MergeSettings]:
    """The mirrors to merge and how, those that the pipeline captures among them."""
    return plan_merges(config, chosen, captured=load_captured_mirrors(lake, config))


def plan_merges(
    config: Config, chosen: Sequence[str], *, captured: Mapping[str, CapturedMirror]
) -> dict[str, MergeSettings]:
    """The same, with what is captured."""
    return {
        mirror: merge_settings(config, mirror, captured=captured.get(mirror))
        for mirror in merge_tables(config, chosen, captured=captured)
    }


def merge_settings(
    config: Config, mirror: str, *, captured: CapturedMirror | None = None
) -> MergeSettings:
    """What the document says about merging this mirror; one of those ``merge_tables`` names."""
    settings = table_settings(config, mirror)
    if captured is not None:
        settings = replace(settings, changelog=str(captured.changelog), key=captured.key)
    if settings.changelog is None or not settings.key:
        message = "without its changelog and its key the table cannot be merged."
        raise ConfigError(message, table=mirror, next_step=f"add both to {mirror} under tables")
    ours = CdcColumns(settings.column_prefix)
    catalog = config.catalog.name
    own = settings.mirror
    merge = MergeSettings(
        changelog=parse_table_name(settings.changelog, catalog=catalog),
        mirror=parse_table_name(mirror, catalog=catalog),
        key=settings.key,
        sequence=settings.sequence,
        operation=settings.operation,
        unchanged=ours.unchanged,
        previous_key=ours.previous_key,
        bookkeeping=_bookkeeping(ours, settings),
        pipeline=config.pipeline,
        order=settings.order,
        deletes=own.deletes,
        on_drop=own.on_drop,
        evolution=own.evolution,
        format_version=own.format_version,
        partition_by=own.partition_by,
        sort_by=own.sort_by,
        max_rows=config.merge.max_rows,
        write=_write_settings(settings),
        index=_index_settings(settings),
    )
    # With order append nothing is remembered of deletes.
    return merge if settings.tombstones is None else replace(merge, tombstones=settings.tombstones)


def retry_policy(config: Config) -> RetryPolicy:
    """How often, and after which waits, something is tried again."""
    retry = config.retry
    return RetryPolicy(retry.attempts, retry.base.total_seconds(), retry.max.total_seconds())


def _nothing_to_merge(config: Config) -> ConfigError:
    if config.source is None:
        return ConfigError(
            "the configuration names no table with a changelog and a key to merge by.",
            next_step="list them under tables: {mirror, changelog, key}",
        )
    return ConfigError(
        "nothing was captured yet that has a key to merge by.", next_step="frazil ingest --once"
    )


def _is_mergeable(table: Table) -> bool:
    # Without a source the document is refused unless every table has both.
    return table.changelog is not None and bool(table.key)


def _unknown(name: str, known: dict[str, str]) -> ConfigError:
    near = get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else "."
    message = f"--table: {name!r} is not among the tables to merge{hint}"
    return ConfigError(message, next_step="frazil config show lists them under tables")


def _bookkeeping(ours: CdcColumns, settings: TableSettings) -> tuple[str, ...]:
    """Our columns that neither the settings name nor the mirror shows."""
    named = {settings.sequence, settings.operation, ours.unchanged, ours.previous_key}
    return tuple(name for name in ours.names if name not in named)


def _write_settings(settings: TableSettings) -> WriteSettings:
    write = settings.mirror.write
    return WriteSettings(
        target_file_bytes=write.target_file_size,
        compression=_ICEBERG_CODECS.get(write.compression, write.compression.value),
        row_group_rows=write.row_group_rows,
    )


def _index_settings(settings: TableSettings) -> IndexSettings:
    index = settings.mirror.index
    return IndexSettings(
        young_entries=index.young_entries,
        max_runs=index.max_runs,
        cache_dir=index.cache_dir,
        cache_bytes=index.cache_bytes,
    )
