"""Both loops report to it; pages, commands and metrics read the state of the pipeline from it.

Commands, the page and metrics all show what ``now`` gives, so that they cannot differ.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from frazil.hooks import SystemClock
from frazil.ledger.table_state import Copying, Removed
from frazil.model.marker import MarkerRole
from frazil.pipeline.next_step import RetryAfter
from frazil.pipeline.status.freshness import CaptureFreshness, MirrorFreshness, SourceAnswers
from frazil.pipeline.status.lake_facts import LakeTotals
from frazil.pipeline.status.merge_status import MergeStep
from frazil.pipeline.status.problems import problem_of_error, problem_of_state
from frazil.pipeline.status.tally import StatusTally, Throughput
from frazil.pipeline.status.upkeep_status import UpkeepBoard
from frazil.pipeline.status.values import (
    Phase,
    PipelineStatus,
    Sample,
    SourceStatus,
    TableStatus,
    copy_status,
)
from frazil.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from datetime import datetime

    from frazil.hooks import Clock
    from frazil.ingest.progress import CopyProgress
    from frazil.ingest.report import BatchReport
    from frazil.ledger.table_state import TableState
    from frazil.merge.report import MergeReport
    from frazil.pipeline.next_step import NextStep
    from frazil.pipeline.status.lake_facts import LakeFacts, LakeQuestion
    from frazil.pipeline.status.merge_status import MergeStatus
    from frazil.pipeline.status.values import ProblemStatus
    from frazil.pipeline.tables.captured_names import CapturedNames
    from frazil.sources.health import SourceHealth
    from frazil.sources.protocol import ReadProgress

# A plot of half an hour in steps that can be distinguished on a small screen.
SAMPLE_SECONDS = 5.0
MOST_SAMPLES = 360


class Ingested(Protocol):
    """The ingester, as the board sees it."""

    @property
    def table_states(self) -> Mapping[str, TableState]:
        """The state of every table."""

    @property
    def progress(self) -> CopyProgress | None:
        """How far the running copy has come."""

    @property
    def pending_commits(self) -> int:
        """Of the batch that is being written."""


class StatusBoard:
    """One per process; may be used from any thread."""

    def __init__(
        self, pipeline: str, *, roles: tuple[str, ...], clock: Clock | None = None
    ) -> None:
        self._pipeline = pipeline
        self._roles = roles
        self._clock = clock or SystemClock()
        self._started_at = self._clock.now()
        self._lock = threading.RLock()
        self.upkeep = UpkeepBoard()
        self._tally = StatusTally()
        self._capture = CaptureFreshness()
        self._mirrors = MirrorFreshness()
        # By mirror, when the running merge began, and the last one that did not fail.
        self._merge_began: dict[str, float] = {}
        self._looked_at: dict[str, float] = {}
        self._lake = LakeTotals()
        # Of tables without a key.
        self._no_mirrors: set[str] = set()
        self._ingested: Ingested | None = None
        self._source: ReadProgress | None = None
        self._kind = ""
        self._names: Callable[[str], CapturedNames | None] = lambda _table: None
        self._merges: Callable[[], Sequence[MergeStatus]] | None = None
        self._answers = SourceAnswers(self._started_at)
        self._source_problem: ProblemStatus | None = None
        self._standby: str | None = None
        self._next_ingest: datetime | None = None
        # When each phase and each problem began, by table.
        self._phases: dict[str, tuple[Phase, datetime]] = {}
        self._problems: dict[str, tuple[str, datetime]] = {}
        self._in_state_since: dict[str, datetime] = {}
        self._samples: deque[Sample] = deque(maxlen=MOST_SAMPLES)
        self._sampled = self._clock.monotonic()
        self._throughput = Throughput(self._sampled)

    # --- who is followed ---

    def follow_capture(
        self,
        ingested: Ingested,
        source: ReadProgress,
        *,
        kind: str,
        names: Callable[[str], CapturedNames | None],
    ) -> None:
        """Show the tables of this ingest from now on."""
        with self._lock:
            self._ingested, self._source, self._kind, self._names = ingested, source, kind, names

    def follow_merges(self, statuses: Callable[[], Sequence[MergeStatus]]) -> None:
        """Show the mirrors of this loop from now on."""
        with self._lock:
            self._merges = statuses

    def expect(self, mirrors: Collection[str]) -> None:
        """These mirrors may lack something until a merge of theirs has ended."""
        with self._lock:
            self._no_mirrors.difference_update(mirrors)
            self._mirrors.expect(mirrors, None)

    def dismiss(self, mirror: str) -> None:
        """This mirror will not be: what is captured of its table has no key."""
        with self._lock:
            self._no_mirrors.add(mirror)
            self._mirrors.dismiss(mirror)

    # --- what is recorded ---

    def record_batch(self, report: BatchReport) -> None:
        """A batch of changes or of copied tables is recorded in the ledger."""
        with self._lock:
            self._tally.add_batch(report, self._clock.now())
            self._follow_copy()
            self._throughput.add_batch(report)
            for each in report.tables:
                if report.is_copy:
                    self._capture.join(each.table)
                # How fresh a copy is, is unknown until its changes follow.
                base = None if report.is_copy else self._capture.through_of(each.table)
                self._expect_of(self._names(each.table), base)
                self._lake.request(each.changelog, MarkerRole.INGEST, each.table)

    def record_step(self, next_seconds: float) -> None:
        """The source was read, and what it had is recorded in the ledger."""
        with self._lock:
            self._source_problem = self._standby = None
            self._next_ingest = self._clock.now() + timedelta(seconds=max(0.0, next_seconds))
            # Before the position: a stream that replaces it has another one.
            followed = frozenset[str]() if self._source is None else self._source.followed
            reached = None if self._source is None else self._source.reached
            if reached is not None:
                self._capture.reach(reached, followed)

    def record_standby(self, reason: str) -> None:
        """Another process does the work; what this one knew of it grows old."""
        with self._lock:
            self._source_problem, self._standby = None, reason
            self._capture = CaptureFreshness()

    def record_ingest_error(self, error: Exception, step: NextStep) -> None:
        """Capturing failed for all tables."""
        with self._lock:
            self._tally.add_error(error)
            now = self._clock.now()
            since = now if self._source_problem is None else self._source_problem.since
            retry_at = (
                now + timedelta(seconds=step.seconds) if isinstance(step, RetryAfter) else None
            )
            self._source_problem = problem_of_error(error, since=since, retry_at=retry_at)
            self._standby = None

    def record_answer(self, look: SourceHealth, *, asked: float) -> None:
        """The server was asked how far it is, at this moment of the monotonic clock."""
        with self._lock:
            self._capture.observe(asked - look.age_seconds, look.newest)
            self._answers.record(look, asked=asked, at=self._clock.now())
            received = None if self._source is None else self._source.received()
            if received is not None:
                self._capture.receive(*received)

    def record_no_answer(self) -> None:
        """The server could not be asked how far it is."""
        with self._lock:
            self._answers.fail()

    def record_state_since(self, since: Mapping[str, datetime]) -> None:
        """Since when tables are in their state, also before this process."""
        with self._lock:
            self._in_state_since = dict(since)
            for table, (reason, known) in self._problems.items():
                self._problems[table] = reason, min(known, since.get(table, known))

    def record_lake(self, question: LakeQuestion, facts: LakeFacts) -> None:
        """What a table of the lake shows; the answer to one of the open questions."""
        with self._lock:
            self._lake.answer(question, facts)
            self._tally.remember(question.lake_table, facts.commits)

    def record_merge_start(self, mirror: str) -> None:
        """A merge begins."""
        with self._lock:
            self._mirrors.begin_merge(mirror)
            self._merge_began[mirror] = self._clock.monotonic()

    def record_merge(self, mirror: str, report: MergeReport) -> None:
        """A run that did not fail."""
        with self._lock:
            self._tally.add_merge(mirror, report, self._clock.now())
            if self._ingested is None:
                self._throughput.add(report.rows_read)
            self._mirrors.end_merge(mirror)
            if mirror in self._merge_began:
                self._looked_at[mirror] = self._merge_began[mirror]
            if report.commits:
                self._lake.request(str(report.mirror), MarkerRole.MERGE, mirror)

    def record_merge_error(self, mirror: str, error: Exception) -> None:
        """A run that failed."""
        with self._lock:
            self._tally.add_error(error)
            self._mirrors.fail_merge(mirror, self._capture.through)

    def tick(self) -> None:
        """Observe, and take a sample when it is time."""
        self.observe()
        status = self.now()
        with self._lock:
            self._follow_copy()
            now = self._clock.monotonic()
            if now - self._sampled < SAMPLE_SECONDS:
                return
            rate = self._throughput.rate(now)
            self._sampled = now
            self._samples.append(
                Sample(at=status.at, lag_seconds=status.lag_seconds, changes_per_second=rate)
            )

    def observe(self) -> None:
        """Record phases and problems that begin or end by themselves, and tables to be loaded."""
        tables = self.now().tables
        captured = {} if self._ingested is None else self._ingested.table_states
        with self._lock:
            for each in tables:
                self._phases[each.table] = each.phase, each.since
                if each.trouble is None:
                    self._problems.pop(each.table, None)
                    self._in_state_since.pop(each.table, None)
                else:
                    # The ledger's date may have been recorded since the status was taken.
                    known = self._in_state_since.get(each.table, each.trouble.since)
                    since = min(each.trouble.since, known)
                    self._problems[each.table] = each.trouble.reason, since
                # What is only merged goes by the name of its mirror.
                names = self._names(each.table) if each.table in captured else None
                self._load_later(each, names)

    def _load_later(self, status: TableStatus, names: CapturedNames | None) -> None:
        table = status.table
        if names is None:
            if status.mirror is not None:
                self._lake.want(status.mirror, MarkerRole.MERGE, table)
            return
        mirror = names.mirror_text
        if mirror is not None and self._reads_mirror(
            mirror, status.phase, is_merged=status.mirror is not None
        ):
            self._lake.want(mirror, MarkerRole.MERGE, table)
        self._lake.want(str(names.changelog), MarkerRole.INGEST, table)
        if status.phase is Phase.COPYING:
            # Its rows are recorded before they are reported, and until then it would look complete.
            self._expect_of(names, None)

    def open_questions(self) -> tuple[LakeQuestion, ...]:
        """The tables of the lake that were not queried yet, or that have a newer commit."""
        with self._lock:
            return self._lake.questions

    # --- what is shown ---

    def now(self) -> PipelineStatus:
        """The state of everything at this moment; reads only."""
        with self._lock:
            ingested, merges = self._ingested, self._merges
        table_states = {} if ingested is None else ingested.table_states
        progress = None if ingested is None else ingested.progress
        statuses = {} if merges is None else {each.table: each for each in merges()}
        with self._lock:
            tables = [
                self._captured(table_state, statuses, progress)
                for table_state in table_states.values()
                if not isinstance(table_state.state, Removed)
            ]
            shown = {each.mirror for each in tables}
            tables += [
                self._merged(each) for mirror, each in statuses.items() if mirror not in shown
            ]
            return PipelineStatus(
                pipeline=self._pipeline,
                version=__version__,
                at=self._clock.now(),
                started_at=self._started_at,
                is_live=True,
                roles=self._roles,
                source=self._source_status(),
                tables=tuple(sorted(tables, key=lambda each: each.table)),
                commits=self._tally.commits,
                errors=dict(self._tally.errors),
                samples=tuple(self._samples),
                upkeep=self.upkeep.now(),
            )

    def _source_status(self) -> SourceStatus | None:
        if self._source is None:
            return None
        now, reached = self._clock.monotonic(), self._capture.reached
        health = self._answers.health(now)
        return SourceStatus(
            kind=self._kind,
            lag_seconds=self._age(self._capture.through),
            lag_bytes=self._lag_bytes(),
            health=None if health is None else health.captured_to(reached),
            unknown_since=self._answers.unknown_since(now),
            is_paused=self._source.is_paused,
            pending_commits=0 if self._ingested is None else self._ingested.pending_commits,
            next_run=self._next_ingest,
            trouble=self._source_problem,
            standby=self._standby,
            leases_held=len(reached) if isinstance(reached, Mapping) else None,
        )

    def _captured(
        self,
        table_state: TableState,
        statuses: Mapping[str, MergeStatus],
        progress: CopyProgress | None,
    ) -> TableStatus:
        table, names = table_state.table, self._names(table_state.table)
        mirror = None if names is None else names.mirror_text
        merge = None if mirror is None else statuses.get(mirror)
        trouble = self._problem_of(table, table_state, merge)
        phase = self._phase_of(table_state, merge, trouble)
        changelog = None if names is None else str(names.changelog)
        reads_mirror = self._reads_mirror(mirror, phase, is_merged=merge is not None)
        is_first = self._is_first_load(mirror if reads_mirror else changelog)
        merged = mirror if merge is not None else None
        return replace(
            self._state(table, phase, trouble, merge, changelog=changelog, mirror=merged),
            is_first_load=is_first,
            lag_seconds=None if is_first else self._lag_of(phase, table, mirror, trouble),
            lag_bytes=self._lag_bytes(),
            captured=dict(self._tally.captured.get(table, {})),
            copy=copy_status(table, progress) if phase is Phase.COPYING else None,
        )

    def _merged(self, status: MergeStatus) -> TableStatus:
        trouble = self._problem_of(status.table, None, status)
        phase, report = self._phase_of(None, status, trouble), status.report
        table, changelog = status.table, None if report is None else str(report.changelog)
        is_first = self._is_first_load(table)
        return replace(
            self._state(table, phase, trouble, status, changelog=changelog, mirror=table),
            is_first_load=is_first,
            lag_seconds=None if is_first else self._lag_of(phase, table, table, trouble),
        )

    def _state(
        self,
        table: str,
        phase: Phase,
        trouble: ProblemStatus | None,
        merge: MergeStatus | None,
        *,
        changelog: str | None,
        mirror: str | None,
    ) -> TableStatus:
        """What is known of captured and of merged tables alike."""
        known, since = self._phases.get(table, (None, None))
        return TableStatus(
            table=table,
            phase=phase,
            since=since if known is phase and since is not None else self._clock.now(),
            changelog=changelog,
            mirror=mirror,
            mirror_rows=self._lake.rows(mirror),
            changelog_rows=self._lake.rows(changelog),
            merged={} if mirror is None else dict(self._tally.merged.get(mirror, {})),
            index=None if mirror is None else self._tally.indexes.get(mirror),
            commits=self._tally.commits_of(changelog, mirror),
            next_run=None if merge is None else merge.next_run,
            trouble=trouble,
        )

    def _lag_of(
        self, phase: Phase, table: str, mirror: str | None, trouble: ProblemStatus | None
    ) -> float | None:
        if phase is Phase.COPYING:
            return None
        if self._ingested is None:
            # The changelog is all there is to compare with, and only a merge reads it.
            lag = self._age(self._looked_at.get(table))
        else:
            base = self._capture.through_of(table)
            lag = self._age(base if mirror is None else self._mirrors.through(mirror, base))
        if phase is Phase.STOPPED and trouble is not None:
            # At least: what it lacked then came before.
            return max(lag or 0.0, (self._clock.now() - trouble.since).total_seconds())
        return lag

    def _reads_mirror(self, mirror: str | None, phase: Phase, *, is_merged: bool) -> bool:
        """Whether readers of a captured table have a mirror, or are to get one here."""
        if mirror is None or self._merges is None or mirror in self._no_mirrors:
            return False
        return is_merged or phase is Phase.COPYING or self._mirrors.lacks(mirror)

    def _is_first_load(self, lake_table: str | None) -> bool:
        """Whether it has no commit yet; one that was not loaded yet may have."""
        if lake_table is None:
            return False
        return self._lake.was_empty(lake_table) and not self._tally.commits_of(lake_table)

    def _lag_bytes(self) -> int | None:
        now = self._clock.monotonic()
        health = self._answers.health(now)
        counts_bytes = health is None or health.counts_bytes
        is_known = self._answers.unknown_since(now) is None
        return self._capture.lag_bytes if is_known and counts_bytes else None

    def _follow_copy(self) -> None:
        if self._ingested is not None:
            self._throughput.follow(self._ingested.progress)

    def _expect_of(self, names: CapturedNames | None, base: float | None) -> None:
        # Where nothing is merged, the changelog is all that readers have of it.
        if names is not None and names.mirror is not None and self._merges is not None:
            self._mirrors.expect([str(names.mirror)], base)

    def _age(self, through: float | None) -> float | None:
        return None if through is None else max(0.0, self._clock.monotonic() - through)

    def _problem_of(
        self, table: str, table_state: TableState | None, merge: MergeStatus | None
    ) -> ProblemStatus | None:
        now = self._clock.now()
        trouble = (
            None if table_state is None else problem_of_state(table, table_state.state, since=now)
        )
        if trouble is None and merge is not None and merge.error is not None:
            retry_at = None if merge.phase is MergeStep.STOPPED else merge.next_run or now
            return problem_of_error(merge.error, since=merge.since, retry_at=retry_at)
        if trouble is None:
            return None
        reason, since = self._problems.get(table, (None, now))
        known = self._in_state_since.get(table, now)
        return replace(trouble, since=since if reason == trouble.reason else known)

    def _phase_of(
        self,
        table_state: TableState | None,
        merge: MergeStatus | None,
        trouble: ProblemStatus | None,
    ) -> Phase:
        if trouble is not None and trouble.retry_at is None:
            return Phase.STOPPED
        if table_state is not None and isinstance(table_state.state, Copying):
            return Phase.COPYING
        if merge is not None and merge.phase is MergeStep.MERGING:
            return Phase.MERGING
        is_captured = self._source_problem is None and self._standby is None
        if table_state is None or trouble is not None or not is_captured:
            return Phase.WAITING
        return Phase.STREAMING
