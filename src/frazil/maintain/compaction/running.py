"""Compactions and index upkeep of one table from beginning to end, as the upkeep runs them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from frazil.maintain.compaction.compactor import Compactor
from frazil.maintain.compaction.index_runs import land_runs, merge_index_runs
from frazil.maintain.compaction.landing import Abandoned, land
from frazil.maintain.compaction.sites import LogSite, MirrorSite
from frazil.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pyspark.sql import SparkSession

    from frazil.clients.iceberg.commit.retrying import RetryPolicy
    from frazil.clients.iceberg.lake import Lake
    from frazil.maintain.compaction.compactor import Rewrite, RewriteOptions
    from frazil.maintain.compaction.landing import Landed
    from frazil.maintain.compaction.landing_queue import LandingQueue
    from frazil.merge.planning.settings import MergeSettings
    from frazil.model.table_name import TableName

_log = get_logger(__name__)
# Longer than most intervals between merges.
_PATIENCE_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionReport:
    """A rewrite and what came of it; ``rewrite`` is None when no file could be rewritten."""

    rewrite: Rewrite | None
    landing: Landed | Abandoned | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCompaction:
    """Compacts one table; lives on the driver.

    ``settings`` are those of a mirror's merges. With ``queue``, they land what is finished; without
    it, this thread does, and the commit's compare-and-swap keeps merges of any process apart.
    """

    session: SparkSession
    lake: Lake
    table: TableName
    settings: MergeSettings | None = None
    is_ledger: bool = False
    queue: LandingQueue | None = None

    def compact(
        self, locations: Collection[str], options: RewriteOptions | None = None
    ) -> CompactionReport:
        """Rewrite these files and land the new ones; waits until that is done."""
        compactor = Compactor(self.session, self.lake, self.table, self.settings)
        rewrite = compactor.rewrite(locations, options)
        if rewrite is None:
            return CompactionReport(rewrite=None, landing=None)
        landing = self._landed(partial(land, rewrite, self._site()))
        return CompactionReport(rewrite=rewrite, landing=landing)

    def merge_runs(self, *, slots: int = 1) -> Landed | Abandoned | None:
        """Merge runs of the mirror's index, if there are too many; None when there are not."""
        if self.settings is None:
            return None
        merged = merge_index_runs(self.session, self.lake, self.settings, slots=slots)
        if merged is None:
            return None
        site = MirrorSite(self.session, self.lake, self.settings)
        return self._landed(partial(land_runs, merged, site))

    def _landed(self, landing: Callable[..., Landed | Abandoned]) -> Landed | Abandoned:
        found = self._landed_somewhere(landing)
        if isinstance(found, Abandoned):
            _log.info("finished upkeep was given up", table=str(self.table), reason=found.reason)
        return found

    def _landed_somewhere(self, landing: Callable[..., Landed | Abandoned]) -> Landed | Abandoned:
        if self.queue is None:
            return landing()

        def attempt(retry: RetryPolicy) -> Landed | Abandoned:
            return landing(retry=retry)

        done = self.queue.put(attempt)
        try:
            return done.result(_PATIENCE_SECONDS)
        except TimeoutError:
            # Its merges are far between, or stopped: then nothing is to be raced with.
            return landing() if self.queue.withdraw(done) else done.result()

    def _site(self) -> MirrorSite | LogSite:
        if self.settings is not None:
            return MirrorSite(self.session, self.lake, self.settings)
        if self.is_ledger:
            return LogSite.of_ledger(self.lake, self.table)
        return LogSite(self.lake, self.table)
