"""From the configuration to an ingest: the source, its tables' settings, and their loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.clients.iceberg.lake import Lake
from frazil.clients.spark.session import is_alive
from frazil.config import table_settings
from frazil.ingest.ingester import Ingester
from frazil.ingest.settings import CaptureSettings, IngestSettings
from frazil.ledger.table import Ledger
from frazil.pipeline.configured_source import configured_source
from frazil.pipeline.loops.ingest_loop import IngestLoop
from frazil.pipeline.loops.loop import ignore
from frazil.pipeline.recording.recorders import TracedIngest
from frazil.pipeline.recovery import may_pass
from frazil.pipeline.tables.captured_mirrors import dead_letters_name, ledger_name
from frazil.pipeline.tables.captured_names import LakeNames
from frazil.pipeline.tables.merge_settings import retry_policy
from frazil.sources.protocol import Limit

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from frazil.config import Config
    from frazil.hooks import Clock
    from frazil.ingest.report import BatchReport
    from frazil.pipeline.loops.loop import StopRequest
    from frazil.pipeline.next_step import NextStep
    from frazil.pipeline.tables.captured_names import CapturedNames
    from frazil.sources.kind import CapturePolicy, SourceKind
    from frazil.sources.protocol import Claim, ObservableSource
    from frazil.telemetry.tracing import Tracing


@dataclass(frozen=True, slots=True)
class Capture:
    """Everything that an ingest is made of."""

    kind: SourceKind
    source: ObservableSource
    ingester: Ingester
    names: LakeNames
    lake: Lake
    limit: Limit
    claim: Claim


def build_capture(
    session: SparkSession,
    config: Config,
    *,
    claims: bool = False,
    clock: Clock | None = None,
    is_stopping: Callable[[], bool] = lambda: False,
) -> Capture:
    """The source and its ingester; nothing is connected yet.

    One that ``claims`` is on standby while another process works for the same source. Where it
    waits for the source, it asks ``is_stopping`` whether to go on.
    """
    names = LakeNames(config)
    kind = configured_source(config, names)
    policy = kind.policy
    source = kind.open(clock=clock, is_stopping=is_stopping)
    lake = Lake(session, config.catalog.name)
    limit = Limit(config.ingest.max_rows, config.ingest.max_bytes)
    claim = kind.claim()
    ingester = Ingester(
        session,
        lake,
        source,
        Ledger.ensure(lake, ledger_name(config), format_version=config.mirror.format_version),
        settings=IngestSettings(
            pipeline=config.pipeline,
            limit=limit,
            held_bytes=policy.held_bytes,
            may_pass=may_pass,
            defect_attempts=retry_policy(config).attempts,
            resyncs_lost=policy.resyncs_lost,
            dead_letters=dead_letters_name(config),
            format_version=config.mirror.format_version,
        ),
        captures=lambda table: capture_settings(config, names.of(table), policy),
        claim=claim if claims else None,
        clock=clock,
    )
    names.follow(lambda: ingester.table_states)
    return Capture(kind, source, ingester, names, lake, limit, claim)


def build_ingest_loop(
    session: SparkSession,
    config: Config,
    capture: Capture,
    *,
    stop: StopRequest,
    on_report: Callable[[BatchReport], None],
    on_error: Callable[[Exception, NextStep], None],
    on_step: Callable[[float], None] = ignore,
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
        on_step=on_step,
        on_error=on_error,
        is_alive=lambda: is_alive(session),
    )


def capture_settings(
    config: Config, names: CapturedNames, policy: CapturePolicy
) -> CaptureSettings:
    """What the configuration says about the changelog of a source table."""
    settings = table_settings(config, names.listed_as)
    own = settings.mirror
    return CaptureSettings(
        changelog=names.changelog,
        prefix=settings.column_prefix,
        partition_by=settings.changelog_partition_by,
        on_drop=own.on_drop,
        evolution=own.evolution,
        on_widen=policy.on_widen,
        format_version=own.format_version,
    )
