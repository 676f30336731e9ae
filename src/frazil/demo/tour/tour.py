"""The tour: a changing shop is captured into a lake, and the result is verified row for row."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from frazil.clients.iceberg.lake import Lake
from frazil.clients.spark.jars import ICEBERG_VERSION
from frazil.clients.spark.java import find_java
from frazil.clients.spark.session import open_session
from frazil.demo.services import embedded_postgres
from frazil.demo.tour.lake_folder import CATALOG, lake_folder, pasted_queries
from frazil.demo.tour.proof import TourProof
from frazil.demo.tour.shop import create_shop
from frazil.demo.tour.shop_changes import Happening
from frazil.demo.tour.shop_workload import ShopWorkload
from frazil.demo.tour.watch import Pace, TourWatch, pipeline_thread
from frazil.pipeline.telemetry import observing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from frazil.clients.spark.session import Session
    from frazil.config import Config
    from frazil.demo.tour.lake_folder import LakeFolder, PastedQuery
    from frazil.demo.tour.proof import MergeContest
    from frazil.demo.tour.shop_workload import ShopCounts
    from frazil.demo.tour.watch import Audience, PipelineThread
    from frazil.pipeline.build_run import PipelineRun
    from frazil.pipeline.telemetry import Observed
    from frazil.telemetry.redaction import Redactor

    # Shows a run to browsers and scrapers, for the time of a block that is given the address.
    Serve = Callable[[PipelineRun, Config, Observed], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TourResult:
    """What was proven, and where to find it."""

    folder: LakeFolder
    page: str
    contest: MergeContest
    queries: tuple[PastedQuery, ...]


@contextmanager
def touring(
    path: Path,
    *,
    audience: Audience,
    redactor: Redactor,
    serve: Serve,
    pace: Pace | None = None,
) -> Iterator[TourResult]:
    """Take the tour; services, pipeline and pages run until the block is left.

    The lake stays in the folder once it is proven; nothing stays otherwise. Raises ServiceError
    when mirrors are not what the shop is.
    """
    # What the machine lacks is said before anything is started.
    find_java()
    with ExitStack() as stack:
        folder = stack.enter_context(lake_folder(path))
        tour = _Tour(stack, folder, TourWatch(audience, pace or Pace()))
        try:
            tour.open_shop(redactor)
            tour.start_pipeline(redactor, serve)
            tour.stream()
            result = tour.prove()
            folder.stays = True
            yield result
        except BaseException as error:
            # Before everything is taken down, which takes some seconds.
            audience.leave(error)
            raise


@dataclass(slots=True)
class _Tour:
    """What was started so far; every step builds on the one before."""

    stack: ExitStack
    folder: LakeFolder
    watch: TourWatch
    dsn: str = field(default="", repr=False)
    rows: int = 0
    page: str = ""
    session: Session = field(init=False)
    config: Config = field(init=False)
    pipeline: PipelineThread = field(init=False)

    def open_shop(self, redactor: Redactor) -> None:
        """A server, and a shop with customers in it."""
        postgres = self.stack.enter_context(embedded_postgres())
        redactor.learn([postgres.password])
        self.watch.done(f"Postgres {postgres.version}", f"{postgres.host}:{postgres.port}")
        self.dsn = postgres.dsn
        rows = create_shop(self.dsn)
        self.rows = sum(rows.values())
        self.watch.done("A shop", f"{self.rows:,} rows in {len(rows)} tables: {', '.join(rows)}")

    def start_pipeline(self, redactor: Redactor, serve: Serve) -> None:
        """What ``frazil run`` does, with this configuration."""
        loaded = self.folder.write_document(self.dsn)
        self.config = loaded.config
        observed = self.stack.enter_context(observing(loaded, redactor))
        self.session = self.stack.enter_context(open_session(self.config))
        self.folder.write_spark_settings(self.config)
        self.watch.done(f"Spark {self.session.version}", f"with Iceberg {ICEBERG_VERSION}")
        self.pipeline = self.stack.enter_context(
            pipeline_thread(self.session, self.config, observed)
        )
        address = self.stack.enter_context(serve(self.pipeline.run, self.config, observed))
        self.page = f"http://{address}/"
        self.watch.done("Status page", self.page)

    def stream(self) -> None:
        """Copy and stream while the shop goes on, then let it rest until the lake has all."""
        watch = self.watch
        with self._workload(reshapes=False) as gentle:
            watch.follow(self.pipeline, gentle)
            watch.until_copied()
        watch.done("Copied", f"{self.rows:,} rows, while the shop went on")
        with self._workload(reshapes=True) as lively:
            watch.follow(self.pipeline, lively)
            watch.stream(lively)
        watch.until_caught_up()
        watch.settle()
        watch.done(
            "Streamed", f"{_describe_counts(watch.counts)}; usually {watch.usual_lag:.1f} s behind"
        )

    def _workload(self, *, reshapes: bool) -> ShopWorkload:
        pace = self.watch.pace
        return ShopWorkload(
            self.dsn,
            seed=pace.seed,
            transactions_per_second=pace.transactions_per_second,
            reshapes=reshapes,
        )

    def prove(self) -> TourResult:
        """The last merge, the proof, and the same merge by another way."""
        lake = Lake(self.session, CATALOG)
        proof = TourProof(self.session, lake, self.config, self.pipeline)
        last = proof.take_stock(self.dsn, self.watch)
        self.watch.done(
            "Stocktaking", f"{last.changes:,} changes at once, merged in {last.seconds:.2f} s"
        )
        proven = proof.verify()
        rows = sum(each.rows_found for each in proven)
        self.watch.done(
            "Proof", f"{rows:,} rows in {len(proven)} mirrors: each one is as in Postgres"
        )
        contest = proof.compare(last)
        self.watch.done("MERGE INTO", "the same rows, from the same changes")
        return TourResult(
            folder=self.folder,
            page=self.page,
            contest=contest,
            queries=pasted_queries(self.folder, proof.location("shop.orders")),
        )


def _describe_counts(counts: ShopCounts) -> str:
    """What happened in the shop, with what is hardest to follow."""
    parts = [f"{counts.transactions:,} transactions"]
    if Happening.COLUMN_ADDED in counts.kinds:
        parts.append("a column added")
    if Happening.CARTS_EMPTIED in counts.kinds:
        parts.append("a table emptied")
    return ", ".join(parts)
