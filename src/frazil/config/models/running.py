"""Settings of the loop: how much at a time, how often, and how failures are retried."""

from collections.abc import Iterator
from datetime import timedelta

from pydantic import Field

from frazil.config.models.naming import PipelineTemplate
from frazil.config.models.section import Broken, Section
from frazil.config.models.values import Count, Duration, FreeMapping, Name, Size, Truth

# Fresh enough for people, and at most 8,640 snapshots a day for the tables.
INGEST_INTERVAL = timedelta(seconds=10)
INGEST_ROWS = 1_000_000
# Two target files of 128 MiB per batch.
INGEST_BYTES = 256 * 2**20
MERGE_INTERVAL = timedelta(minutes=1)
# Fits the memory of a small driver and a handful of executors.
MERGE_ROWS = 5_000_000
# Spark runs one job well; several compete for the same cores.
MERGE_CONCURRENCY = 1
# 0.5 + 1 + 2 + 4 s of waiting: longer than a fail-over of a connection pool.
RETRY_ATTEMPTS = 5
RETRY_BASE = timedelta(milliseconds=500)
RETRY_MAX = timedelta(seconds=30)
# What Kubernetes gives between SIGTERM and SIGKILL.
SHUTDOWN_GRACE = timedelta(seconds=30)


class Ingest(Section):
    """Batches into changelogs; soft bounds, because transactions and segments are not split."""

    interval: Duration = INGEST_INTERVAL
    """Longest wait before a batch."""
    max_rows: Count = INGEST_ROWS
    """Rows after which a batch ends."""
    max_bytes: Size = INGEST_BYTES
    """Bytes after which a batch ends."""


class Merge(Section):
    """Merges into mirrors; a merge follows an ingest at once when idle."""

    interval: Duration = MERGE_INTERVAL
    """Longest wait before a merge."""
    max_rows: Count = MERGE_ROWS
    """Changes merged in one commit."""
    concurrency: Count = MERGE_CONCURRENCY
    """Tables merged at a time."""


class DeadLetters(Section):
    """The table of what could not be written."""

    namespace: PipelineTemplate = "frazil"
    """Its namespace; may use {pipeline}."""
    table: PipelineTemplate = "{pipeline}_dead_letters"
    """Its name; may use {pipeline}."""


class LedgerSection(Section):
    """The pipeline's ledger."""

    namespace: PipelineTemplate = "frazil"
    """Its namespace; may use {pipeline}."""
    table: PipelineTemplate = "{pipeline}_ledger"
    """Its name; may use {pipeline}."""


class Retry(Section):
    """Back-off between attempts, doubling from base to max."""

    attempts: Count = RETRY_ATTEMPTS
    """Attempts in all."""
    base: Duration = RETRY_BASE
    """Wait before the second attempt."""
    max: Duration = RETRY_MAX
    """Longest wait."""

    def broken_rules(self) -> Iterator[Broken]:
        """The longest wait is not the shortest."""
        if self.max < self.base:
            yield Broken(("max",), "must not be less than retry.base", (("base",),))


class Spark(Section):
    """The Spark session."""

    master: Name = "local[*]"
    """Spark master."""
    encrypt: Truth = False
    """Encrypt what Spark's processes send each other and keep on disk."""
    conf: FreeMapping = Field(
        default_factory=dict, description="Spark settings, as they are.", repr=False
    )

    def broken_rules(self) -> Iterator[Broken]:
        """A standalone cluster has no way to hand out a secret of its own."""
        name = "spark.authenticate.secret"
        is_standalone = self.master.startswith("spark://")
        if self.encrypt and is_standalone and name not in self.conf:
            sentence = f"needs {name} in spark.conf, the same on every machine of the cluster"
            yield Broken(("encrypt",), sentence, (("master",), ("conf",)))
