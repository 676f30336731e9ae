"""What ``frazil ingest --once`` does, in the session of the tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from frazil.clients.spark.session import attach_session
from frazil.pipeline.capture import build_capture, build_ingest_loop
from frazil.pipeline.loops.loop import StopRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from frazil.config import Config
    from frazil.ingest.report import BatchReport
    from frazil.pipeline.loops.loop import Ending
    from frazil.pipeline.next_step import NextStep


@dataclass
class IngestOnce:
    """One process's work, and what it reported."""

    reports: list[BatchReport] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)

    def run(self, spark: SparkSession, config: Config) -> Ending:
        """All that is there now."""
        capture = build_capture(attach_session(spark, config), config)

        def fail(error: Exception, _step: NextStep) -> None:
            self.failures.append(error)

        loop = build_ingest_loop(
            spark,
            config,
            capture,
            stop=StopRequest(),
            on_report=self.reports.append,
            on_error=fail,
        )
        try:
            return loop.run(once=True)
        finally:
            # As the end of a process does, however it came.
            capture.source.close()
            capture.claim.release()
