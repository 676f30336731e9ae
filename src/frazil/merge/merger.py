"""The merge of one table: facts are loaded, a plan is made and performed, until nothing is left.

A plan covers some snapshots of the changelog after the mirror's marker, and becomes one commit that
moves the marker to the last of them. ``apply_merge`` folds the changes to one outcome per key,
locates the old rows through the key index, and writes data files and deletes. An entry of the index
names a data file and a row; it is a hint, and counts while the table has that file and that row is
not deleted. When the mirror changed meanwhile, the range is planned again; when its marker was
moved, another process merges, and this one is fenced. A crash leaves at most an empty mirror and
files that no snapshot names.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from frazil.changelog.mirror_record import record_mirror
from frazil.changelog.table import ChangelogTable, load_changelog_facts
from frazil.clients.iceberg.commit.retrying import RetryPolicy, repeat_on_conflict
from frazil.clients.iceberg.lake import BOUNDED_METADATA, TableDefinition
from frazil.clients.spark.memory_backoff import MemoryBackoff
from frazil.clients.spark.pinned_session import pinned_session
from frazil.clients.spark.session import job_description
from frazil.errors import CommitConflictError, FrazilError, TableNotFoundError
from frazil.hooks import SystemClock, SystemRandomness
from frazil.merge.apply import apply_merge
from frazil.merge.assembly import assemble_work
from frazil.merge.planning.plan import HEALED_BY_REBUILD, is_away, needs_rebuild, plan_merge
from frazil.merge.report import MergePhase, MergeReport
from frazil.mirror.table import MirrorTable, load_mirror_facts
from frazil.model.policy import Deletes
from frazil.model.table_facts import COLUMNS_PROPERTY
from frazil.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from frazil.clients.iceberg.lake import Lake
    from frazil.clients.iceberg.table import LakeTable
    from frazil.merge.planning.plan import MergePlan
    from frazil.merge.planning.settings import MergeSettings
    from frazil.merge.report import MergeCommit
    from frazil.model.marker import Marker
    from frazil.model.table_name import TableName

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Done:
    """A commit, and how many snapshots were left for later when it was planned."""

    commit: MergeCommit
    remaining: int


def _never() -> bool:
    return False


def _nothing() -> None:
    pass


def _snapshot_id(marker: Marker) -> int | None:
    # A position that is no snapshot is for the plan to refuse.
    text = str(marker.position)
    return int(text) if text.removeprefix("-").isdecimal() else None


def _description(plan: MergePlan) -> str:
    """The job description in Spark's UI."""
    noun = "snapshot" if plan.snapshots == 1 else "snapshots"
    return f"merge {plan.mirror}, {plan.snapshots} {noun}"


class Merger:
    """Merges one changelog into one mirror; lives on the driver.

    ``between`` is called after every commit, and when there was nothing to merge: finished rewrites
    of the mirror land there, where they meet no merge of this process.
    """

    def __init__(
        self,
        session: SparkSession,
        lake: Lake,
        settings: MergeSettings,
        *,
        retry: RetryPolicy | None = None,
        between: Callable[[], None] = _nothing,
    ) -> None:
        self._session = pinned_session(session)
        self._lake = lake
        self._settings = settings
        self._clock = SystemClock()
        self._randomness = SystemRandomness()
        self._retry = retry or RetryPolicy()
        self._between = between
        # Opened once: a table that is replaced later is detected by its UUID.
        self._opened: dict[TableName, LakeTable] = {}
        # Why a mirror is made again, and why that was done in vain.
        self._cause: object = None
        self._in_vain: object = None
        self._memory = MemoryBackoff()
        self._may_record = True

    @property
    def settings(self) -> MergeSettings:
        """Which changelog and which mirror, and how to merge."""
        return self._settings

    def load_plan(self, *, rebuild: bool = False) -> MergePlan | None:
        """What the next commit would do; None when the mirror is up to date.

        With ``rebuild``, the mirror is made from everything that the changelog holds. That also
        happens by itself when the mirror is damaged, the changelog has a newer copy of the table,
        and deletes are soft or ignored: the copy would not replace the damaged rows.
        """
        try:
            return self._load_plan(rebuild=rebuild)
        except FrazilError as error:
            if rebuild or not self._needs_rebuild(error):
                raise
        return self._load_plan(rebuild=True)

    def _load_plan(self, *, rebuild: bool) -> MergePlan | None:
        changelog = ChangelogTable(self._open(self._settings.changelog))
        mirror = self._mirror()
        facts = None if mirror is None else load_mirror_facts(mirror)
        marker = None if facts is None else facts.marker
        after = None if marker is None or rebuild else _snapshot_id(marker)
        history = load_changelog_facts(changelog, after=after)
        cores = self._session.sparkContext.defaultParallelism
        plan = plan_merge(history, facts, self._settings, cores=cores, rebuild=rebuild)
        return None if plan is None else replace(plan, bits=plan.bits + self._memory.halvings)

    def apply(self, plan: MergePlan) -> MergeCommit:
        """Perform the plan in one commit.

        Raises CommitConflictError when the mirror moved since it was planned, FencedError when
        another process merged.
        """
        start = self._clock.monotonic()
        changelog = ChangelogTable(self._open(self._settings.changelog))
        if plan.records_mirror and self._may_record:
            self._record(changelog)
        mirror = self._ensured(plan)
        with job_description(self._session, _description(plan)):
            work = assemble_work(
                self._session,
                plan,
                self._settings,
                changelog=changelog,
                mirror=mirror,
                clock=self._clock,
                randomness=self._randomness,
            )
            planning = self._clock.monotonic() - start
            done = apply_merge(work)
        phases = {**done.phases, MergePhase.PLAN: planning}
        return replace(done, phases=phases, seconds=done.seconds + planning)

    def merge(self, *, stop: Callable[[], bool] = _never, rebuild: bool = False) -> MergeReport:
        """Merge everything that is there; ``stop``, called between commits, ends it early.

        Changes appended after its last plan are left for the next call. With ``rebuild`` the first
        commit replaces everything in the mirror, whatever state it is in.
        """
        commits: list[MergeCommit] = []
        while not stop():
            done = repeat_on_conflict(
                partial(self._merge_next, rebuild=rebuild and not commits),
                self._retry,
                clock=self._clock,
                randomness=self._randomness,
            )
            self._between()
            if done is None:
                break
            commits.append(done.commit)
            if not done.remaining:
                break
        return MergeReport(
            changelog=self._settings.changelog,
            mirror=self._settings.mirror,
            commits=tuple(commits),
        )

    def _merge_next(self, *, rebuild: bool) -> _Done | None:
        start = self._clock.monotonic()
        plan = self.load_plan(rebuild=rebuild)
        if plan is None:
            return None
        if plan.replaces is not None and not rebuild:
            _log.warning("damaged mirror is made again from its changelog", table=str(plan.mirror))
        planning = self._clock.monotonic() - start
        try:
            done = self.apply(plan)
        except FrazilError as error:
            self._memory.count_failure(error)
            if plan.replaces is not None and isinstance(error, HEALED_BY_REBUILD):
                self._in_vain = None if is_away(error) else self._cause
            if plan.replaces is not None or not self._needs_rebuild(error, plan):
                raise
            _log.warning(
                "damaged mirror is made again from its changelog",
                table=str(plan.mirror),
                code=error.code,
            )
            return self._merge_next(rebuild=True)
        self._memory.count_success()
        phases = {**done.phases, MergePhase.PLAN: done.phases[MergePhase.PLAN] + planning}
        commit = replace(done, phases=phases, seconds=done.seconds + planning)
        return _Done(commit, plan.remaining_snapshots)

    def _needs_rebuild(self, error: FrazilError, plan: MergePlan | None = None) -> bool:
        """Whether the mirror is to be made again; ``plan`` is the one that could not be applied."""
        if not isinstance(error, HEALED_BY_REBUILD) or self._settings.deletes is Deletes.APPLY:
            return False
        mirror = self._mirror()
        if mirror is None:
            return False
        changelog = ChangelogTable(self._open(self._settings.changelog))
        facts = load_mirror_facts(mirror)
        if plan is not None and (plan.head is None or plan.head != facts.head):
            # Files of another head than the table has now may be gone, and rightly so.
            return False
        after = None if facts.marker is None else _snapshot_id(facts.marker)
        history = load_changelog_facts(changelog, after=after)
        copies = [each.id for each in history.snapshots if each.restart is not None]
        self._cause = error.code, facts.head, copies
        return self._cause != self._in_vain and needs_rebuild(history, facts, self._settings, error)

    def _record(self, changelog: ChangelogTable) -> None:
        """Let the changelog's retention know the mirror; a merge does not fail with that."""
        try:
            record_mirror(changelog.table, self._settings.mirror, clock=self._clock)
        except CommitConflictError:
            # The next plan asks for it again.
            return
        except FrazilError as error:
            # Who may only read the changelog can merge; asking again would be refused again.
            self._may_record = False
            _log.warning(
                "retention of the changelog will not wait for this mirror",
                table=str(self._settings.mirror),
                changelog=str(self._settings.changelog),
                code=error.code,
            )

    def _ensured(self, plan: MergePlan) -> MirrorTable:
        if plan.creates is None:
            return MirrorTable(self._open(self._settings.mirror))
        write = self._settings.write
        properties = {
            **BOUNDED_METADATA,
            "write.target-file-size-bytes": str(write.target_file_bytes),
            "write.parquet.compression-codec": write.compression,
            # If this merge fails, names may have changed when the next one runs.
            COLUMNS_PROPERTY: plan.schema.columns,
        }
        definition = TableDefinition(
            schema=plan.creates.schema,
            spec=plan.creates.spec,
            sort_order=plan.creates.sort_order,
            format_version=plan.creates.format_version,
            properties=properties,
        )
        return MirrorTable.ensure(self._lake, self._settings.mirror, definition)

    def _open(self, name: TableName) -> LakeTable:
        if name not in self._opened:
            self._opened[name] = self._lake.open(name)
        return self._opened[name]

    def _mirror(self) -> MirrorTable | None:
        try:
            return MirrorTable(self._open(self._settings.mirror))
        except TableNotFoundError:
            return None
