"""What a tour proves at its end: mirrors equal their sources, and merges did what they report."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

from frazil.demo.tour.merge_contest import LastMerge, compare_merges
from frazil.demo.tour.shop import SCHEMA, take_stock
from frazil.errors import ServiceError
from frazil.model.table_name import parse_table_name
from frazil.pipeline.tables.captured_mirrors import load_captured_mirrors
from frazil.pipeline.tables.merge_settings import plan_merges
from frazil.pipeline.verification import build_source_verifier

if TYPE_CHECKING:
    from frazil.clients.iceberg.lake import Lake
    from frazil.clients.spark.session import Session
    from frazil.config import Config
    from frazil.demo.tour.merge_contest import MergeContest
    from frazil.demo.tour.pipeline_thread import PipelineThread
    from frazil.demo.tour.watch import TourWatch
    from frazil.model.table_name import TableName
    from frazil.verify.mirror_verifier import Verification

_COUNTED = f"{SCHEMA}.order_lines"


class TourProof:
    """Compares Postgres with the lake."""

    def __init__(
        self, session: Session, lake: Lake, config: Config, pipeline: PipelineThread
    ) -> None:
        self._session = session
        self._lake = lake
        self._config = config
        self._pipeline = pipeline
        self._captured = load_captured_mirrors(lake, config)
        self._merges = plan_merges(config, (), captured=self._captured)

    def take_stock(self, dsn: str, watch: TourWatch) -> LastMerge:
        """One large transaction in a shop at rest, and the merge that brings it to the mirror."""
        settings = self._merges[_COUNTED]
        after, before = self._head(settings.changelog), self._head(settings.mirror)
        changes = take_stock(dsn)
        watch.until_caught_up()
        return LastMerge(
            changelog=settings.changelog,
            mirror=settings.mirror,
            key=settings.key,
            operation=settings.operation,
            after=after,
            through=self._head(settings.changelog),
            before=before,
            changes=changes,
            seconds=self._seconds_since(settings.mirror, before),
        )

    def _seconds_since(self, mirror: TableName, before: int) -> float:
        """How long the merges took that the mirror has had since a snapshot."""
        since = takewhile(lambda each: each.id != before, self._lake.open(mirror).iter_ancestry())
        snapshots = {each.id for each in since}
        return sum(
            commit.seconds or 0.0
            for table in self._pipeline.status().tables
            for commit in table.commits
            if table.mirror == str(mirror) and commit.snapshot_id in snapshots
        )

    def verify(self) -> list[Verification]:
        """Compare every mirror with its table, row for row. Raises ServiceError if one differs."""
        verifier = build_source_verifier(self._session, self._lake, self._config)
        if verifier is None:
            raise TypeError(self._config.source)
        found = []
        for mirror, settings in self._merges.items():
            verdict = verifier.verify(settings, self._captured[mirror].source)
            if not verdict.agrees or verdict.is_behind or verdict.unjudged:
                message = f"{mirror} is not what {self._captured[mirror].source} is: {verdict.note}"
                raise ServiceError(message, next_step="report it, this is a defect in frazil")
            found.append(verdict)
        return found

    def compare(self, last: LastMerge) -> MergeContest:
        """The last merge again, by ``MERGE INTO``."""
        return compare_merges(self._session, self._lake, last)

    def location(self, mirror: str) -> str:
        """The folder of a mirror."""
        name = parse_table_name(mirror, catalog=self._config.catalog.name)
        return self._lake.open(name).load_metadata_location().rpartition("/metadata/")[0]

    def _head(self, table: TableName) -> int:
        head = self._lake.open(table).load_state().head
        if head is None:
            message = f"{table} is empty."
            raise ServiceError(message)
        return head.id
