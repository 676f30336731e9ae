"""Names that existing dashboards query; exported when their configuration document is used.

They keep their own labels, so none has ``pipeline``. A counter gets ``_total`` where it lacked it,
because the exposition format demands it.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from frazil.telemetry.metric_names import Counter, Gauge, Histogram, Label, Metric, Unit

TABLE: Final = Label("table")
TOPIC: Final = Label("topic")
# Partitions are numbered by the broker; as many as it has.
PARTITION: Final = Label("partition")
RESULT: Final = Label("result", frozenset({"written", "dropped", "invalid", "skipped_lfs"}))
STAGE: Final = Label(
    "stage", frozenset({"discover", "checkpoint", "decode", "lfs", "schema", "sink"})
)
LFS_REASON: Final = Label("reason", frozenset({"decode", "resolve"}))

# The original leaves them to its exporter; these span its default interval of a minute both ways.
MERGER_SECONDS: Final = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
# The original counts milliseconds into buckets made for seconds, so that all fall into the last;
# these are what it meant: 5 ms to a minute.
WRITE_MILLISECONDS: Final = (
    5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 5000.0, 10000.0, 60000.0,
)  # fmt: skip
# The default buckets of the original's client library, which its dashboards were drawn for.
BLOB_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

MERGER_CYCLE_COMPLETED: Final = Counter(
    name="merger_cycle_completed_total", help="Merge cycles that ended."
)
MERGER_CYCLE_DURATION: Final = Histogram(
    name="merger_cycle_duration_seconds",
    help="Time a merge cycle over all tables took.",
    unit=Unit.SECONDS,
    buckets=MERGER_SECONDS,
)
MERGER_TABLE_SUCCESS: Final = Counter(
    name="merger_table_success_total", help="Merges of a table that succeeded.", labels=(TABLE,)
)
MERGER_TABLE_FAILURE: Final = Counter(
    name="merger_table_failure_total", help="Merges of a table that failed.", labels=(TABLE,)
)
MERGER_TABLE_DURATION: Final = Histogram(
    name="merger_table_duration_seconds",
    help="Time the merge of a table took.",
    unit=Unit.SECONDS,
    labels=(TABLE,),
    buckets=MERGER_SECONDS,
)
MERGER_ROWS_SCANNED: Final = Counter(
    name="merger_rows_scanned_total", help="Rows read from changelogs."
)
MERGER_ROWS_DEDUPLICATED: Final = Counter(
    name="merger_rows_deduplicated_total", help="Rows left after keeping the newest of each key."
)
MERGER_MERGE_DURATION: Final = Histogram(
    name="merger_merge_duration_seconds",
    help="Time merging took, without reading its configuration and facts.",
    unit=Unit.SECONDS,
    buckets=MERGER_SECONDS,
)
MERGER_BYTES_WRITTEN: Final = Counter(
    # The name does not end in its unit, and a declared unit would change the name.
    name="merger_bytes_written_total",
    help="Bytes of data files written.",
)

PROCESSOR_RECORDS: Final = Counter(
    name="kafscale_processor_records_total",
    help="Records by what became of them; dropped and invalid ones are dead letters.",
    labels=(TOPIC, RESULT),
)
PROCESSOR_BATCHES: Final = Counter(
    name="kafscale_processor_batches_total", help="Batches written.", labels=(TOPIC,)
)
PROCESSOR_ERRORS: Final = Counter(
    name="kafscale_processor_errors_total", help="Errors, by where they arose.", labels=(STAGE,)
)
PROCESSOR_WRITE_LATENCY: Final = Histogram(
    name="kafscale_processor_write_latency_ms",
    help="Time a write took, in milliseconds.",
    unit=Unit.MILLISECONDS,
    labels=(TOPIC,),
    buckets=WRITE_MILLISECONDS,
)
PROCESSOR_LAST_OFFSET: Final = Gauge(
    name="kafscale_processor_last_offset",
    help="Offset of the last record written.",
    labels=(TOPIC, PARTITION),
)
PROCESSOR_WATERMARK_OFFSET: Final = Gauge(
    name="kafscale_processor_watermark_offset",
    help="Offset up to which everything is written.",
    labels=(TOPIC, PARTITION),
)
PROCESSOR_WATERMARK_TIMESTAMP: Final = Gauge(
    name="kafscale_processor_watermark_timestamp_ms",
    help="Time of the last commit of the partition, in milliseconds since 1970.",
    unit=Unit.MILLISECONDS,
    labels=(TOPIC, PARTITION),
)
PROCESSOR_LFS_RESOLVED: Final = Counter(
    name="kafscale_processor_lfs_resolved_total",
    help="Envelopes replaced by their blob.",
    labels=(TOPIC,),
)
PROCESSOR_LFS_RESOLVED_BYTES: Final = Counter(
    name="kafscale_processor_lfs_resolved_bytes_total",
    help="Bytes of the blobs that replaced their envelopes.",
    unit=Unit.BYTES,
    labels=(TOPIC,),
)
PROCESSOR_LFS_ERRORS: Final = Counter(
    name="kafscale_processor_lfs_resolution_errors_total",
    help="Envelopes that could not be replaced by their blob, by the reason.",
    labels=(TOPIC, LFS_REASON),
)
PROCESSOR_LFS_DURATION: Final = Histogram(
    name="kafscale_processor_lfs_resolution_duration_seconds",
    help="Time the resolution of an envelope took, as the mean of its batch.",
    unit=Unit.SECONDS,
    labels=(TOPIC,),
    buckets=BLOB_SECONDS,
)


class ForeignNames(Enum):
    """Which foreign names are exported in addition to ours."""

    NONE = "none"
    MERGER = "merger"
    PROCESSOR = "processor"


def _named(prefix: str) -> tuple[Metric, ...]:
    declared = (each for each in globals().values() if isinstance(each, Metric))
    return tuple(each for each in declared if each.name.startswith(prefix))


FOREIGN_METRICS: Final[dict[ForeignNames, tuple[Metric, ...]]] = {
    ForeignNames.NONE: (),
    ForeignNames.MERGER: _named("merger_"),
    ForeignNames.PROCESSOR: _named("kafscale_processor_"),
}
