"""A mirror that a pipeline merges and maintains, with its own mergers and maintenance loop."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

from benchmarks.support.bench_lake import Tables, catalog_document, print_progress
from benchmarks.support.busy_compaction import BusyCompaction
from benchmarks.support.change_feed import ChangeFeed
from frazil.clients.iceberg.lake import TableDefinition
from frazil.config import load_config
from frazil.maintain.compaction.running import TableCompaction
from frazil.maintain.jobs import CompactJob, IndexJob
from frazil.model.table_name import TableName
from frazil.pipeline.loops.loop import StopRequest
from frazil.pipeline.loops.maintenance_loop import MaintenanceLoop
from frazil.pipeline.maintenance import PipelineUpkeep
from frazil.pipeline.mergers import Mergers
from frazil.telemetry.tracing import NoTracing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.support.bench_lake import BenchLake, Shape
    from frazil.config import Config
    from frazil.maintain.jobs import JobOutcome
    from frazil.maintain.maintainer import UpkeepPlan
    from frazil.merge.merger import Merger
    from frazil.merge.report import MergeReport

_DOCUMENT = """
pipeline: bench
{catalog}
tables: [{{mirror: {mirror}, changelog: {changelog}, key: [id], order: append}}]
mirror: {{index: {{cache_dir: '{folder}/cache'}}}}
maintenance: {maintenance}
"""
# The first changes are many, and a batch of them is one file for each task.
_ONE_FILE_CHANGES = 100_000
# A maintenance job in the middle of a request ends by itself.
_END_SECONDS = 120.0


@dataclass(slots=True)
class Upkept:
    """What the maintenance loop did; written by its thread."""

    outcomes: list[JobOutcome] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def take_outcome(self, _plan: UpkeepPlan, outcome: JobOutcome) -> None:
        """One job has ended."""
        self.outcomes.append(outcome)

    def take_error(self, table: str, error: Exception) -> None:
        """One job has failed."""
        self.errors.append(f"{table}: {type(error).__name__}: {error}")

    @property
    def compactions(self) -> list[JobOutcome]:
        """Rewrites of data files, landed or not."""
        return [each for each in self.outcomes if isinstance(each.job, CompactJob)]

    @property
    def facts(self) -> dict[str, object]:
        """In numbers, for a report."""
        index = [each for each in self.outcomes if isinstance(each.job, IndexJob)]
        return {
            "compactions": len(self.compactions),
            "index_jobs": len(index),
            "other_jobs": len(self.outcomes) - len(self.compactions) - len(index),
            "not_done": sum(not each.is_done for each in self.outcomes),
            "given_up": sorted({each.given_up for each in self.outcomes if each.given_up}),
            "bytes_rewritten": sum(each.bytes_written for each in self.compactions),
            "files_removed": sum(each.files_removed for each in self.compactions),
            "seconds": round(sum(each.seconds for each in self.outcomes), 2),
        }


def pipeline_config(lake: BenchLake, tables: Tables, maintenance: str = "{}") -> Config:
    """A pipeline that merges and maintains one mirror."""
    mirror, changelog = tables.mirror, tables.changelog
    document = lake.folder / f"{mirror.table}.yaml"
    text = _DOCUMENT.format(
        catalog=catalog_document(lake.folder),
        mirror=f"bench.{mirror.table}",
        changelog=f"bench.{changelog.table}",
        folder=lake.folder,
        maintenance=maintenance,
    )
    document.write_text(text)
    return load_config(document, environ={}).config


def maintain_once(lake: BenchLake, tables: Tables) -> dict[str, object]:
    """Do all that the mirror needs, as ``frazil maintain --once`` does; what that was."""
    done = Upkept()
    loop = MaintenanceLoop(
        PipelineUpkeep(lake.session, pipeline_config(lake, tables)),
        interval=timedelta(seconds=1),
        stop=StopRequest(),
        on_outcome=done.take_outcome,
        on_error=done.take_error,
    )
    loop.run(once=True)
    if done.errors:
        message = f"maintenance failed: {done.errors}"
        raise AssertionError(message)
    return done.facts


class MaintainedMirror:
    """A changelog that is filled here, and the mirror that is merged from it."""

    def __init__(
        self, lake: BenchLake, shape: Shape, *, seed: int, maintenance: str = "{}"
    ) -> None:
        self._lake = lake
        self.shape = shape
        self.feed = ChangeFeed(shape.rows, seed)
        name = f"{shape.name}_{uuid4().hex[:8]}"
        self.tables = Tables(
            shape=shape,
            changelog=TableName("lake", ("bench",), f"{name}_changelog"),
            mirror=TableName("lake", ("bench",), name),
            made={},
        )
        self.mirror_name = f"bench.{name}"
        self.config = pipeline_config(lake, self.tables, maintenance)
        self._mergers = Mergers(lake.session, self.config, NoTracing())
        lake.lake.ensure_table(
            self.tables.changelog, TableDefinition(schema=shape.changelog_schema)
        )

    @property
    def merger(self) -> Merger:
        """The pipeline's own, which lands finished rewrites between its merges."""
        return self._mergers.merger_of(self.mirror_name)

    @property
    def waiting(self) -> int:
        """Finished rewrites that have not landed yet."""
        return len(self._mergers.queue_of(self.mirror_name))

    def load(self, batches: int) -> None:
        """All rows of the shape, by so many merges."""
        rows = self.shape.rows
        started = time.perf_counter()
        for number in range(batches):
            first, end = rows * number // batches, rows * (number + 1) // batches
            numbers = self._lake.session.range(first, end).selectExpr(
                "id as n", "0 as v", "'READ' as operation", "id as sequence"
            )
            changes = self._lake.rows(self.shape, numbers)
            changes.writeTo(self.tables.changelog.quoted).append()
            self.merger.merge()
            print_progress(f"{self.shape.name}: merge {number + 1} of {batches} loaded")
        made = {f"{batches} merges": round(time.perf_counter() - started, 1)}
        self.tables = replace(self.tables, made=made)

    def append(self, count: int) -> None:
        """Put the next changes into the changelog."""
        numbers = self._lake.session.createDataFrame(self.feed.draw(count))
        rows = self._lake.rows(self.shape, numbers)
        rows = rows.coalesce(1) if count <= _ONE_FILE_CHANGES else rows
        rows.writeTo(self.tables.changelog.quoted).append()

    def merge(self) -> MergeReport:
        """Merge what is there."""
        return self.merger.merge()

    def compacting(self) -> BusyCompaction:
        """Compactions of all files that never pause, and land between the merges."""
        return BusyCompaction(
            TableCompaction(
                session=self._lake.session,
                lake=self._lake.lake,
                table=self.tables.mirror,
                settings=self.merger.settings,
                queue=self._mergers.queue_of(self.mirror_name),
            )
        )

    @contextmanager
    def maintained(self, interval: float) -> Iterator[Upkept]:
        """Look after the mirror every so many seconds, until the block is left."""
        done, stop = Upkept(), StopRequest()
        loop = MaintenanceLoop(
            PipelineUpkeep(self._lake.session, self.config, queue_of=self._mergers.queue_of),
            interval=timedelta(seconds=interval),
            stop=stop,
            on_outcome=done.take_outcome,
            on_error=done.take_error,
        )
        thread = threading.Thread(target=loop.run, name="maintenance", daemon=True)
        thread.start()
        try:
            yield done
        finally:
            stop.set()
            thread.join(_END_SECONDS)
