"""From the document to what runs: which tables are merged, how, and the mergers themselves."""

from __future__ import annotations

import threading
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

from frazil.changelog.layout import CdcColumns
from frazil.clients.iceberg.lake import Lake
from frazil.clients.iceberg.retrying import RetryPolicy
from frazil.clients.spark import is_alive
from frazil.config import Compression, table_settings
from frazil.errors import ConfigError
from frazil.merge.merger import Merger
from frazil.merge.settings import IndexSettings, MergeSettings, WriteSettings
from frazil.model.table_name import parse_table_name
from frazil.pipeline.loop import MergeLoop
from frazil.pipeline.recording import TracedMerge

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from frazil.config import Config, Table, TableSettings
    from frazil.merge.report import MergeReport
    from frazil.pipeline.loop import Stop
    from frazil.pipeline.recording import Recorder
    from frazil.telemetry.tracing import Tracing

# The document speaks as Parquet's users do, tables as Iceberg does. Hadoop's framing of LZ4, which
# Iceberg calls by the plain name, is read by few.
_ICEBERG_CODECS = {Compression.NONE: "uncompressed", Compression.LZ4: "lz4_raw"}


def merge_tables(config: Config, chosen: Sequence[str] = ()) -> tuple[str, ...]:
    """The mirrors to merge, in the document's order; those chosen, when any are.

    A table may be chosen by the name of its mirror or of its changelog. Raises ConfigError for a
    name the document does not have, and for a document that names no table to merge.
    """
    listed = {table.mirror: table for table in config.tables if _is_mergeable(table)}
    if not listed:
        raise ConfigError(
            "the configuration names no table with a changelog and a key to merge by.",
            next_step="list them under tables: {mirror, changelog, key}",
        )
    if not chosen:
        return tuple(listed)
    by_any_name = {str(table.changelog): mirror for mirror, table in listed.items()}
    by_any_name |= {mirror: mirror for mirror in listed}
    for name in chosen:
        if name not in by_any_name:
            raise _unknown(name, by_any_name)
    wanted = {by_any_name[name] for name in chosen}
    return tuple(mirror for mirror in listed if mirror in wanted)


def merge_settings(config: Config, mirror: str) -> MergeSettings:
    """What the document says about merging this mirror; one of those ``merge_tables`` names."""
    settings = table_settings(config, mirror)
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


def build_loop(
    session: SparkSession,
    config: Config,
    mirrors: Sequence[str],
    *,
    recorder: Recorder,
    tracing: Tracing,
    stop: Stop,
) -> MergeLoop:
    """The loop over these mirrors.

    Nothing is asked of the catalog yet: one that is away when a process starts is met like one that
    goes away later.
    """
    mergers = _Mergers(session, config)
    return MergeLoop(
        {name: TracedMerge(name, _Merge(mergers, name), tracing) for name in mirrors},
        interval=config.merge.interval,
        concurrency=config.merge.concurrency,
        retry=retry_policy(config),
        stop=stop,
        on_report=recorder.record_report,
        on_error=recorder.record_error,
        on_cycle=recorder.record_cycle,
        is_alive=lambda: is_alive(session),
    )


def build_merger(session: SparkSession, config: Config, mirror: str) -> Merger:
    """The merger of one mirror, on its own view of the catalog."""
    return Merger(session, Lake(session, config.catalog.name), merge_settings(config, mirror))


def retry_policy(config: Config) -> RetryPolicy:
    """How often, and after which waits, something is tried again."""
    retry = config.retry
    return RetryPolicy(retry.attempts, retry.base.total_seconds(), retry.max.total_seconds())


class _Mergers:
    """Mergers on one catalog, made when they are first wanted, by whichever thread wants them."""

    def __init__(self, session: SparkSession, config: Config) -> None:
        self._session = session
        self._config = config
        self._making = threading.Lock()
        self._lake: Lake | None = None
        self._made: dict[str, Merger] = {}

    def merger_of(self, mirror: str) -> Merger:
        """The same one every time."""
        with self._making:
            if self._lake is None:
                self._lake = Lake(self._session, self._config.catalog.name)
            if mirror not in self._made:
                settings = merge_settings(self._config, mirror)
                retry = retry_policy(self._config)
                self._made[mirror] = Merger(self._session, self._lake, settings, retry=retry)
            return self._made[mirror]


class _Merge:
    def __init__(self, mergers: _Mergers, mirror: str) -> None:
        self._mergers = mergers
        self._mirror = mirror

    def merge(self, *, stop: Callable[[], bool]) -> MergeReport:
        return self._mergers.merger_of(self._mirror).merge(stop=stop)


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
