"""Upkeep of the tables of one catalog: facts are loaded, jobs are planned and performed.

Every job is safe beside merges and other processes, and again after a kill: what it did is found
in the table, and what it did not do is planned again. A table that fails leaves the others alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from frazil.errors import CommitConflictError
from frazil.hooks import SystemClock, SystemRandomness
from frazil.ledger.retention import retire_rows
from frazil.maintain.jobs import (
    ExpireJob,
    JobOutcome,
    LedgerJob,
    ManifestsJob,
    OrphansJob,
    RetentionJob,
)
from frazil.maintain.loading import load_facts
from frazil.maintain.orphans import run_orphans
from frazil.maintain.policy import lagging_mirrors, plan_jobs
from frazil.maintain.removal import run_expiry, run_manifests, run_retention

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from frazil.clients.iceberg.lake import Lake
    from frazil.clients.iceberg.table import LakeTable
    from frazil.hooks import Clock, Randomness
    from frazil.maintain.facts import TableHealth, UpkeepFacts
    from frazil.maintain.jobs import Job
    from frazil.maintain.table_set import KeptTable
    from frazil.model.policy import JobKind
    from frazil.model.table_name import TableName

    # Performs a job of one type on its table.
    JobRunner: TypeAlias = Callable[..., JobOutcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepPlan:
    """One table: its health, its jobs in their order, and mirrors whose changes are kept for them.

    ``lagging`` has each with the age of its oldest waiting change in seconds.
    """

    table: KeptTable
    health: TableHealth
    jobs: tuple[Job, ...]
    lagging: tuple[tuple[str, float], ...] = ()


class Maintainer:
    """Looks after tables; lives on the driver. ``also`` adds runners for further types of job."""

    def __init__(
        self,
        lake: Lake,
        *,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
        also: Mapping[type, JobRunner] | None = None,
    ) -> None:
        self._lake = lake
        self._clock = clock or SystemClock()
        self._randomness = randomness or SystemRandomness()
        # As of the last look at each table: most have the same head at the next one.
        self._known: dict[TableName, UpkeepFacts] = {}
        self._runners: dict[type, JobRunner] = {
            ExpireJob: run_expiry,
            ManifestsJob: run_manifests,
            RetentionJob: run_retention,
            LedgerJob: self._run_ledger,
            OrphansJob: partial(run_orphans, now=self._clock.now),
            **(also or {}),
        }

    def load_facts(self, kept: KeptTable) -> UpkeepFacts | None:
        """The table as it is; None if it does not exist or is not ours to look after."""
        facts = load_facts(self._lake, kept, self._known.pop(kept.name, None))
        if facts is not None:
            self._known[kept.name] = facts
        return facts

    def load_plan(
        self, kept: KeptTable, kinds: Collection[JobKind] | None = None
    ) -> UpkeepPlan | None:
        """What the table needs now, of these kinds or of all; None for one that is not ours."""
        facts = self.load_facts(kept)
        if facts is None:
            return None
        now, settings = self._clock.now(), kept.settings
        jobs = plan_jobs(facts, settings, now)
        return UpkeepPlan(
            table=kept,
            health=facts.health(settings.small_bytes),
            jobs=tuple(
                each
                for each in jobs
                if type(each) in self._runners and (kinds is None or each.kind in kinds)
            ),
            lagging=lagging_mirrors(facts, settings, now),
        )

    def perform(
        self, plan: UpkeepPlan, *, stop: Callable[[], bool] = lambda: False
    ) -> Iterator[JobOutcome]:
        """The jobs one by one, until a stop is requested; raises what a job fails with."""
        for job in plan.jobs:
            if stop():
                return
            began = self._clock.monotonic()
            outcome = self._runners[type(job)](self._lake.open(job.table), job)
            yield replace(outcome, seconds=self._clock.monotonic() - began)

    def _run_ledger(self, table: LakeTable, job: LedgerJob) -> JobOutcome:
        try:
            retired = retire_rows(table, job.before, clock=self._clock, randomness=self._randomness)
        except CommitConflictError:
            return JobOutcome(job=job, is_done=False)
        return JobOutcome(
            job=job,
            files_removed=retired.files,
            bytes_removed=retired.bytes,
            rows_removed=retired.rows,
            files_added=retired.files_written,
        )
