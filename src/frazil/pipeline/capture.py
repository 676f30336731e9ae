"""From the document to an ingest: the source, its tables' settings, and the loop over them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from frazil.clients.catalog_settings import catalog_properties
from frazil.clients.iceberg.lake import Lake
from frazil.clients.spark.session import is_alive
from frazil.config import OnSlotLost, PostgresSection, table_settings
from frazil.errors import ConfigError
from frazil.ingest.ingester import Ingester
from frazil.ingest.settings import CaptureSettings, IngestSettings
from frazil.ledger.table import Ledger
from frazil.model.schema.types import parse_scalar
from frazil.pipeline.loops.ingest_loop import IngestLoop
from frazil.pipeline.recording.ingest_recorder import TracedIngest
from frazil.pipeline.tables.captured_mirrors import ledger_name
from frazil.pipeline.tables.captured_names import LakeNames
from frazil.pipeline.tables.merge_settings import retry_policy
from frazil.sources.postgres.settings import PostgresSettings
from frazil.sources.postgres.slot.claim import SlotClaim
from frazil.sources.postgres.source import PostgresSource
from frazil.sources.postgres.spool_files import SpoolFiles
from frazil.sources.postgres.tables.description import TableOptions
from frazil.sources.protocol import Limit

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from frazil.config import Config, TableSettings
    from frazil.hooks import Clock
    from frazil.ingest.report import BatchReport
    from frazil.pipeline.loops.merge_loop import Stop
    from frazil.pipeline.next_step import NextStep
    from frazil.pipeline.tables.captured_names import CapturedNames
    from frazil.telemetry.tracing import Tracing


@dataclass(frozen=True, slots=True)
class Capture:
    """Everything that an ingest is made of."""

    source: PostgresSource
    ingester: Ingester
    settings: PostgresSettings
    names: LakeNames
    lake: Lake
    limit: Limit
    claim: SlotClaim


def build_capture(
    session: SparkSession,
    config: Config,
    *,
    claims: bool = False,
    clock: Clock | None = None,
) -> Capture:
    """The source and its ingester; nothing is asked of the source yet.

    One that ``claims`` stands by while another process works for the same slot.
    """
    names = LakeNames(config)
    settings = postgres_settings(config, names)
    source = PostgresSource(settings, clock=clock)
    lake = Lake(session, config.catalog.name)
    limit = Limit(config.ingest.max_rows, config.ingest.max_bytes)
    given = _postgres(config)
    claim = SlotClaim(settings)
    ingester = Ingester(
        session,
        lake,
        source,
        Ledger.ensure(lake, ledger_name(config)),
        settings=IngestSettings(
            pipeline=config.pipeline,
            limit=limit,
            held_bytes=given.on_stopped_table.most_bytes,
            defect_attempts=retry_policy(config).attempts,
            resyncs_lost=given.on_slot_lost is OnSlotLost.RESYNC,
        ),
        captures=lambda table: capture_settings(config, names.of(table)),
        claim=claim if claims else None,
        clock=clock,
    )
    names.follow(lambda: ingester.table_states)
    return Capture(source, ingester, settings, names, lake, limit, claim)


def build_ingest_loop(
    session: SparkSession,
    config: Config,
    capture: Capture,
    *,
    stop: Stop,
    on_report: Callable[[BatchReport], None],
    on_error: Callable[[Exception, NextStep], None],
    on_step: Callable[[float], None] | None = None,
    tracing: Tracing | None = None,
) -> IngestLoop:
    """The loop that runs an ingest."""
    ingester = capture.ingester
    return IngestLoop(
        ingester if tracing is None else TracedIngest(ingester, tracing),
        capture.source,
        interval=config.ingest.interval,
        limit=capture.limit,
        stop=stop,
        retry=retry_policy(config),
        on_report=on_report,
        on_step=on_step or _ignore,
        on_error=on_error,
        is_alive=lambda: is_alive(session),
    )


def _ignore(_seconds: float) -> None:
    """Nobody waits for the next look."""


def postgres_settings(config: Config, names: LakeNames | None = None) -> PostgresSettings:
    """What the document says about the source; ConfigError if it names none."""
    given = _postgres(config)
    known = names or LakeNames(config)
    return PostgresSettings(
        dsn=given.dsn,
        slot=given.slot,
        publication=given.publication.name,
        creates_publication=given.publication.create,
        include=given.tables,
        exclude=given.exclude,
        # A folder may be shared by pipelines; what lies in theirs is not ours to remove.
        spool=SpoolFiles(
            str(PurePosixPath(given.spool.dir) / config.pipeline)
            if "://" not in str(given.spool.dir)
            else f"{given.spool.dir}/{config.pipeline}",
            tuple(sorted(catalog_properties(config.catalog, config.storage).items())),
        ),
        spool_bytes=given.spool.max_bytes,
        heartbeat_seconds=given.heartbeat.total_seconds(),
        copy_connections=given.initial_copy.connections,
        options=lambda table: table_options(config, known.of(table)),
    )


def capture_settings(config: Config, names: CapturedNames) -> CaptureSettings:
    """What the document says about the changelog of a source table."""
    settings = _settings_of(config, names)
    own = settings.mirror
    return CaptureSettings(
        changelog=names.changelog,
        prefix=settings.column_prefix,
        partition_by=settings.changelog_partition_by,
        on_drop=own.on_drop,
        evolution=own.evolution,
        on_widen=_postgres(config).on_widen,
        format_version=own.format_version,
    )


def table_options(config: Config, names: CapturedNames) -> TableOptions:
    """What the document says about the columns of a source table."""
    settings = _settings_of(config, names)
    columns = settings.columns
    return TableOptions(
        key=settings.key,
        declared={
            name: parse_scalar(each.type) for name, each in columns.items() if each.type is not None
        },
        on_unrepresentable=settings.mirror.on_unrepresentable,
        per_column={
            name: each.on_unrepresentable
            for name, each in columns.items()
            if each.on_unrepresentable is not None
        },
    )


def _settings_of(config: Config, names: CapturedNames) -> TableSettings:
    return table_settings(config, str(names.mirror))


def _postgres(config: Config) -> PostgresSection:
    if not isinstance(config.source, PostgresSection):
        raise ConfigError(
            "there is no source of the kind postgres to ingest from.",
            next_step="add source: {kind: postgres, dsn: …}",
        )
    return config.source
