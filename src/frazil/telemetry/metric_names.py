"""Every metric of ours, in one table; the label ``pipeline`` is added to each.

A metric is a value: name, help, unit, labels, buckets.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from frazil.errors import leaves
from frazil.model.records.rejected_record import RejectReason


class Unit(StrEnum):
    """Base units only; a plain number has none."""

    NONE = ""
    SECONDS = "seconds"
    BYTES = "bytes"
    # Foreign names alone may use it.
    MILLISECONDS = "ms"


@dataclass(frozen=True, slots=True)
class Label:
    """A label; with ``values`` it is closed, without it is open but bounded by configuration."""

    name: str
    values: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """Its name, help, unit and labels; one of the three below."""

    name: str
    help: str
    unit: Unit = Unit.NONE
    labels: tuple[Label, ...] = ()


class Counter(Metric):
    """A number that only grows."""


class Gauge(Metric):
    """The current value of a number; not exposed before it is set for the first time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram(Metric):
    """How often a size or duration fell below each bucket."""

    buckets: tuple[float, ...]


PIPELINE: Final = Label("pipeline")
TABLE: Final = Label("table")
OPERATION: Final = Label("operation", frozenset({"read", "insert", "update", "delete", "truncate"}))
ROLE: Final = Label("role", frozenset({"ingest", "merge", "maintain"}))
OUTCOME: Final = Label("outcome", frozenset({"ok", "conflict", "unknown", "fenced", "failed"}))
# Skipped by their settings, written with a null for a value that did not fit, or written with a
# payload that was fetched.
RECORD_OUTCOME: Final = Label("outcome", frozenset({"skipped", "nulled", "resolved"}))
TABLE_PHASE: Final = Label(
    "phase", frozenset({"copying", "streaming", "merging", "waiting", "stopped"})
)
MERGE_PHASE: Final = Label(
    "phase", frozenset({"plan", "read", "fold", "locate", "write", "index", "commit"})
)
ACTION: Final = Label("action", frozenset({"insert", "update", "delete", "late", "none"}))
REPAIR_REASON: Final = Label(
    "reason",
    frozenset({"foreign_commit", "no_ancestor", "missing", "damaged", "other_key", "rollback"}),
)
JOB: Final = Label("job", frozenset({"compact", "expire", "manifests", "retention", "orphans"}))
DIRECTION: Final = Label("direction", frozenset({"read", "written", "removed"}))
FILE_CLASS: Final = Label("class", frozenset({"small", "large", "delete"}))
DEAD_LETTER_REASON: Final = Label("reason", frozenset(RejectReason))
CODE: Final = Label("code", frozenset(leaf.code for leaf in leaves()))
# Stops a table as well, and has no code.
DEFECT: Final = "defect"
STOP_CODE: Final = Label("code", frozenset({DEFECT, *(leaf.code for leaf in leaves())}))

# A commit is a few requests to a catalog: tens of milliseconds on a local one, seconds on a busy
# one; past a minute it is a fault, and one bucket more shows how bad.
COMMIT_SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
# A batch or merge takes from half a second (small, warm) to an hour (first copy); steps of about
# two around the default intervals of ten seconds and one minute, where the alerts are.
BATCH_SECONDS: Final = (0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
# One phase of a merge may be a lookup of milliseconds.
PHASE_SECONDS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
# From one row to beyond `merge.max_rows` (5 million), in decades with a step in between.
ROWS: Final = (1.0, 10.0, 100.0, 1e3, 1e4, 5e4, 1e5, 5e5, 1e6, 5e6, 1e7)
# From a few rows (4 KiB) to four times the default target of 128 MiB, in steps of four, so that
# "too small" and "as wanted" are distinct.
FILE_BYTES: Final = tuple(float(4**power * 1024) for power in range(1, 11))

SOURCE_EVENTS: Final = Counter(
    name="frazil_source_events_total",
    help="Changes read from the source.",
    labels=(TABLE, OPERATION),
)
SOURCE_RECORDS: Final = Counter(
    name="frazil_source_records_total",
    help="Records of the source with which something happened that is only counted.",
    labels=(TABLE, RECORD_OUTCOME),
)
RESOLVED_BYTES: Final = Counter(
    name="frazil_resolved_bytes_total",
    help="Bytes of payloads that were fetched for records that point to them.",
    unit=Unit.BYTES,
    labels=(TABLE,),
)
RESOLVED_SECONDS: Final = Counter(
    name="frazil_resolved_seconds_total",
    help="Time that tasks waited for such payloads and compared them.",
    unit=Unit.SECONDS,
    labels=(TABLE,),
)
SOURCE_LAG_BYTES: Final = Gauge(
    name="frazil_source_lag_bytes",
    help="Bytes between the newest position of the source and the one committed.",
    unit=Unit.BYTES,
)
SOURCE_LAG_SECONDS: Final = Gauge(
    name="frazil_source_lag_seconds",
    help="Age of the newest state of the source that is captured completely.",
    unit=Unit.SECONDS,
)
SOURCE_LAG_RECORDS: Final = Gauge(
    name="frazil_source_lag_records",
    help="Records of all partitions of the source that are not captured yet, as offsets say.",
)
SOURCE_PENDING_EVENTS: Final = Gauge(
    name="frazil_source_pending_events",
    help="Events that wait at a source that keeps them until they are captured; counted up to "
    "100,001.",
)
SOURCE_OLDEST_PENDING_SECONDS: Final = Gauge(
    name="frazil_source_oldest_pending_seconds",
    help="Age of the oldest event that waits at such a source, 0 without one.",
    unit=Unit.SECONDS,
)
SOURCE_FULL: Final = Gauge(
    name="frazil_source_full",
    help="Whether such a source asks its writers to pause, 1 or 0.",
)
SOURCE_DEAD_LETTERS: Final = Gauge(
    name="frazil_source_dead_letters",
    help="Dead letters that a source keeps itself; counted up to 100,001.",
)
SLOT_RETAINED_BYTES: Final = Gauge(
    name="frazil_slot_retained_bytes",
    help="Bytes of WAL that the replication slot keeps the server from removing.",
    unit=Unit.BYTES,
)
SLOT_SAFE_WAL_BYTES: Final = Gauge(
    name="frazil_slot_safe_wal_bytes",
    help="Bytes of WAL that may still be written before the slot is in danger of being lost.",
    unit=Unit.BYTES,
)
COMMITS: Final = Counter(
    name="frazil_commits_total",
    help="Attempts to commit to a table, by how they ended.",
    labels=(TABLE, ROLE, OUTCOME),
)
COMMIT_DURATION: Final = Histogram(
    name="frazil_commit_duration_seconds",
    help="Time a commit to a table took.",
    unit=Unit.SECONDS,
    buckets=COMMIT_SECONDS,
)
ROWS_WRITTEN: Final = Counter(
    name="frazil_rows_written_total",
    help="Rows in data files that were committed.",
    labels=(TABLE, ROLE),
)
DATA_FILES: Final = Counter(
    name="frazil_data_files_total",
    help="Data files that were committed.",
    labels=(TABLE, ROLE),
)
FILE_SIZE: Final = Histogram(
    name="frazil_file_bytes",
    help="Size of the data files that were committed.",
    unit=Unit.BYTES,
    buckets=FILE_BYTES,
)
PENDING_COMMITS: Final = Gauge(
    name="frazil_pending_commits",
    help="Commits of the running batch that have not ended yet.",
)
TABLES: Final = Gauge(
    name="frazil_tables",
    help="Tables of the pipeline, by the phase they are in.",
    labels=(TABLE_PHASE,),
)
TABLE_STOPPED: Final = Gauge(
    name="frazil_table_stopped",
    help="Whether a table is stopped until an operator acts, 1 or 0, with the code of the reason.",
    labels=(TABLE, STOP_CODE),
)
BATCH_ROWS: Final = Histogram(
    name="frazil_batch_rows",
    help="Rows in a batch.",
    buckets=ROWS,
)
BATCH_DURATION: Final = Histogram(
    name="frazil_batch_duration_seconds",
    help="Time a batch took from planning to the last commit.",
    unit=Unit.SECONDS,
    labels=(ROLE,),
    buckets=BATCH_SECONDS,
)
MERGE_DURATION: Final = Histogram(
    name="frazil_merge_duration_seconds",
    help="Time a phase of a merge took.",
    unit=Unit.SECONDS,
    labels=(TABLE, MERGE_PHASE),
    buckets=PHASE_SECONDS,
)
MERGE_ROWS: Final = Counter(
    name="frazil_merge_rows_total",
    help="Keys merged into a mirror, by what became of them.",
    labels=(TABLE, ACTION),
)
MERGE_FILES: Final = Counter(
    name="frazil_merge_files_total",
    help="Data files of a mirror that a merge touched.",
    labels=(TABLE,),
)
MERGE_LAG_SECONDS: Final = Gauge(
    name="frazil_merge_lag_seconds",
    help="Age of the newest state that readers of the mirror are sure to see.",
    unit=Unit.SECONDS,
    labels=(TABLE,),
)
INDEX_ENTRIES: Final = Gauge(
    name="frazil_index_entries",
    help="Entries in the key index of a mirror.",
    labels=(TABLE,),
)
INDEX_BYTES: Final = Gauge(
    name="frazil_index_bytes",
    help="Size of the key index of a mirror.",
    unit=Unit.BYTES,
    labels=(TABLE,),
)
INDEX_REPAIRS: Final = Counter(
    name="frazil_index_repairs_total",
    help="Repairs and rebuilds of a key index, by their reason.",
    labels=(REPAIR_REASON,),
)
DEAD_LETTERS: Final = Counter(
    name="frazil_dead_letters_total",
    help="Changes put among the dead letters, by their reason.",
    labels=(DEAD_LETTER_REASON,),
)
LEASE_HELD: Final = Gauge(
    name="frazil_lease_held",
    help="Partitions of the source that this process holds a lease of.",
)
BACKPRESSURE_ACTIVE: Final = Gauge(
    name="frazil_backpressure_active",
    help="Whether reading is held back because writing lags, 1 or 0.",
)
ERRORS: Final = Counter(
    name="frazil_errors_total",
    help="Errors met, by their code.",
    labels=(CODE,),
)
MAINTENANCE_JOBS: Final = Counter(
    name="frazil_maintenance_jobs_total",
    help="Jobs of maintenance, by how they ended; conflict is tried again at the next look.",
    labels=(TABLE, JOB, OUTCOME),
)
MAINTENANCE_FAILURES: Final = Counter(
    name="frazil_maintenance_failures_total",
    help="Looks at a table, or jobs, that failed; the next look tries again.",
    labels=(TABLE,),
)
MAINTENANCE_DURATION: Final = Histogram(
    name="frazil_maintenance_duration_seconds",
    help="Time that a job of maintenance took.",
    unit=Unit.SECONDS,
    labels=(JOB,),
    buckets=BATCH_SECONDS,
)
MAINTENANCE_BYTES: Final = Counter(
    name="frazil_maintenance_bytes_total",
    help="Bytes that maintenance has read, written and removed.",
    unit=Unit.BYTES,
    labels=(JOB, DIRECTION),
)
TABLE_FILES: Final = Gauge(
    name="frazil_table_files",
    help="Files of a table: small and large data files, and delete files.",
    labels=(TABLE, FILE_CLASS),
)
TABLE_DEAD_ROWS: Final = Gauge(
    name="frazil_table_dead_rows_ratio",
    help="The share of a table's rows that is deleted, and that scans still read.",
    labels=(TABLE,),
)
TABLE_SNAPSHOTS: Final = Gauge(
    name="frazil_table_snapshots",
    help="Snapshots that a table lists.",
    labels=(TABLE,),
)
TABLE_BYTES: Final = Gauge(
    name="frazil_table_bytes",
    help="Size of a table's live data files.",
    unit=Unit.BYTES,
    labels=(TABLE,),
)
BUILD_INFO: Final = Gauge(
    name="frazil_build_info",
    help="Always 1; the labels say which release runs.",
    labels=(Label("version"), Label("python")),
)

METRICS: Final = tuple(each for each in vars().values() if isinstance(each, Metric))
