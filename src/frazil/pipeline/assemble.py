"""From the document to what runs: which tables are merged, how, and the mergers themselves."""

from __future__ import annotations

import threading
from dataclasses import replace
from difflib import get_close_matches
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeGuard

from frazil.changelog.layout import CdcColumns
from frazil.clients.iceberg.lake import Lake
from frazil.clients.iceberg.retrying import RetryPolicy
from frazil.clients.spark import is_alive
from frazil.config import Compression, table_settings
from frazil.errors import ConfigError
from frazil.merge.merger import Merger
from frazil.merge.settings import IndexSettings, MergeSettings, WriteSettings
from frazil.model.table_name import parse_table_name
from frazil.pipeline.captured_mirrors import load_captured_mirror, load_captured_mirrors
from frazil.pipeline.captured_names import CapturedNames, captured_names
from frazil.pipeline.loop import MergeLoop
from frazil.pipeline.recording import TracedMerge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from frazil.config import Config, Table, TableSettings
    from frazil.merge.report import MergeReport
    from frazil.pipeline.captured_mirrors import CapturedMirror
    from frazil.pipeline.captured_names import Named
    from frazil.pipeline.loop import Stop
    from frazil.pipeline.recording import Recorder
    from frazil.telemetry.tracing import Tracing

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
    """Tell mistakes of the document now, not after the seconds that Spark needs to start."""
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


def build_loop(
    session: SparkSession,
    config: Config,
    chosen: Sequence[str],
    *,
    recorder: Recorder,
    tracing: Tracing,
    stop: Stop,
) -> MergeLoop:
    """The loop over the mirrors that are chosen, or over all.

    Without a source nothing is asked of the catalog yet: one that is away when a process starts is
    met like one that goes away later. With a source only the ledger knows the tables.
    """
    captured: Mapping[str, CapturedMirror] = NOTHING_CAPTURED
    if config.source is not None:
        captured = load_captured_mirrors(Lake(session, config.catalog.name), config)
    mirrors = merge_tables(config, chosen, captured=captured)
    recorder.follow(mirrors)
    mergers = _Mergers(session, config, captured)
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


def retry_policy(config: Config) -> RetryPolicy:
    """How often, and after which waits, something is tried again."""
    retry = config.retry
    return RetryPolicy(retry.attempts, retry.base.total_seconds(), retry.max.total_seconds())


class _Mergers:
    """Mergers on one catalog, made when they are first wanted, by whichever thread wants them."""

    def __init__(
        self, session: SparkSession, config: Config, captured: Mapping[str, CapturedMirror]
    ) -> None:
        self._session = session
        self._config = config
        self._sources = {mirror: each.source for mirror, each in captured.items()}
        self._making = threading.Lock()
        self._lake: Lake | None = None
        self._made: dict[str, Merger] = {}

    def merger_of(self, mirror: str) -> Merger:
        """The same one every time, unless what it must know has changed."""
        with self._making:
            if self._lake is None:
                self._lake = Lake(self._session, self._config.catalog.name)
            settings = merge_settings(
                self._config, mirror, captured=self._captured_now(self._lake, mirror)
            )
            made = self._made.get(mirror)
            if made is None or made.settings != settings:
                retry = retry_policy(self._config)
                made = Merger(self._session, self._lake, settings, retry=retry)
                self._made[mirror] = made
            return made

    def _captured_now(self, lake: Lake, mirror: str) -> CapturedMirror | None:
        """A key column may have been renamed at the source since the last merge."""
        source = self._sources.get(mirror)
        if source is None:
            return None
        names = captured_names(self._config, [source])[source]
        return load_captured_mirror(lake, source, names) if _is_named(names) else None


class _Merge:
    def __init__(self, mergers: _Mergers, mirror: str) -> None:
        self._mergers = mergers
        self._mirror = mirror

    def merge(self, *, stop: Callable[[], bool]) -> MergeReport:
        return self._mergers.merger_of(self._mirror).merge(stop=stop)


def _nothing_to_merge(config: Config) -> ConfigError:
    if config.source is None:
        return ConfigError(
            "the configuration names no table with a changelog and a key to merge by.",
            next_step="list them under tables: {mirror, changelog, key}",
        )
    return ConfigError(
        "nothing was captured yet that has a key to merge by.", next_step="frazil ingest --once"
    )


def _is_named(names: Named) -> TypeGuard[CapturedNames]:
    return isinstance(names, CapturedNames)


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
