"""The upkeep of a pipeline's tables, from its configuration; made when it is first wanted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from frazil.clients.iceberg.lake import Lake
from frazil.clients.spark.session import is_alive, job_description
from frazil.maintain.maintainer import Maintainer
from frazil.model.policy import JobKind
from frazil.model.time_window import parse_window
from frazil.pipeline.loops.maintenance_loop import MaintenanceLoop
from frazil.pipeline.recording.upkeep_recorder import UpkeepRecorder
from frazil.pipeline.tables.compactions import Compactions
from frazil.pipeline.tables.kept_tables import load_kept_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from frazil.clients.spark.session import Session
    from frazil.config import Config
    from frazil.maintain.compaction.landing_queue import LandingQueue
    from frazil.maintain.jobs import JobOutcome
    from frazil.maintain.maintainer import UpkeepPlan
    from frazil.maintain.table_set import KeptTable
    from frazil.pipeline.loops.loop import StopRequest
    from frazil.pipeline.status.board import StatusBoard
    from frazil.pipeline.telemetry import Observed


class PipelineUpkeep:
    """The tables of a pipeline, all or those chosen, and jobs of all kinds or of some."""

    def __init__(
        self,
        session: Session,
        config: Config,
        *,
        tables: Sequence[str] = (),
        kinds: Collection[JobKind] = (),
        queue_of: Callable[[str], LandingQueue] | None = None,
    ) -> None:
        self._queue_of = queue_of
        self._compactions: Compactions | None = None
        self._session = session
        self._config = config
        self._tables = tuple(tables)
        self._kinds = frozenset(kinds) or None
        self._maintainer: Maintainer | None = None
        self._lake: Lake | None = None

    def load_tables(self) -> Sequence[KeptTable]:
        """The tables to look after; reads the ledger."""
        return load_kept_tables(self._opened(), self._config, self._tables)

    def load_plan(self, table: KeptTable) -> UpkeepPlan | None:
        """What a table needs; None for one that is not ours."""
        plan = self._made().load_plan(table, self._kinds)
        if plan is None or (self._kinds is not None and JobKind.COMPACT not in self._kinds):
            return plan
        return replace(plan, jobs=(*plan.jobs, *self._compacting().load_index_jobs(table)))

    def perform(self, plan: UpkeepPlan, *, stop: Callable[[], bool]) -> Iterator[JobOutcome]:
        """Its jobs, one by one."""
        with job_description(self._session, f"maintain {plan.table.name}"):
            yield from self._made().perform(plan, stop=stop)

    def _opened(self) -> Lake:
        self._lake = self._lake or Lake(self._session, self._config.catalog.name)
        return self._lake

    def _made(self) -> Maintainer:
        if self._maintainer is None:
            self._maintainer = Maintainer(self._opened(), also=self._compacting().runners)
        return self._maintainer

    def _compacting(self) -> Compactions:
        if self._compactions is None:
            self._compactions = Compactions(
                self._session, self._opened(), self._config, queue_of=self._queue_of
            )
        return self._compactions


def build_maintenance_loop(
    session: Session,
    config: Config,
    *,
    board: StatusBoard,
    observed: Observed,
    stop: StopRequest,
    tables: Sequence[str] = (),
    kinds: Collection[JobKind] = (),
    queue_of: Callable[[str], LandingQueue] | None = None,
    may_start: Callable[[], bool] = lambda: True,
) -> MaintenanceLoop:
    """The loop over the pipeline's tables, with its receivers."""
    recorder = UpkeepRecorder(observed.metrics, board)
    return MaintenanceLoop(
        PipelineUpkeep(session, config, tables=tables, kinds=kinds, queue_of=queue_of),
        interval=config.maintenance.interval,
        windows=[parse_window(each) for each in config.maintenance.windows],
        stop=stop,
        on_plan=recorder.record_plan,
        on_outcome=recorder.record_outcome,
        on_error=recorder.record_error,
        may_start=may_start,
        is_alive=lambda: is_alive(session),
    )
