"""The tour: a changing shop is captured into a lake, and the result is verified row for row."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from frazil.clients.iceberg.lake import Lake
from frazil.clients.spark.java import find_java
from frazil.demo.services import embedded_postgres
from frazil.demo.tour.lake_folder import CATALOG, lake_folder, pasted_queries
from frazil.demo.tour.proof import TourProof, table_location
from frazil.demo.tour.shop import SCHEMA, TABLES, create_shop
from frazil.demo.tour.shop_changes import Happening
from frazil.demo.tour.shop_workload import ShopCounts, ShopWorkload
from frazil.demo.tour.stock import STOCK, STOCK_ROWS, create_stock
from frazil.demo.tour.tour_pipeline import PipelineStart
from frazil.demo.tour.watch import Pace, TourWatch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from frazil.demo.tour.lake_folder import LakeFolder, PastedQuery
    from frazil.demo.tour.proof import MergeContest
    from frazil.demo.tour.tour_pipeline import Serve, TourPipeline
    from frazil.demo.tour.watch import Audience
    from frazil.telemetry.redaction import Redactor


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
    stock_rows: int = STOCK_ROWS,
) -> Iterator[TourResult]:
    """Take the tour; services, pipeline and pages run until the block is left.

    The lake stays in the folder once it is proven; nothing stays otherwise. Raises ServiceError
    when mirrors are not what the shop is.
    """
    # What the machine lacks is said before anything is started.
    find_java()
    with ExitStack() as stack:
        folder = stack.enter_context(lake_folder(path))
        watch = TourWatch(audience, pace or Pace(), ShopCounts())
        tour = _Tour(watch, PipelineStart(stack, folder, redactor, serve), stock_rows)
        try:
            tour.open_shop()
            tour.start_pipeline()
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

    watch: TourWatch[ShopCounts]
    start: PipelineStart
    stock_rows: int
    dsn: str = field(default="", repr=False)
    rows: int = 0
    running: TourPipeline = field(init=False)

    @property
    def folder(self) -> LakeFolder:
        return self.start.folder

    def open_shop(self) -> None:
        """A server, and a shop with customers in it."""
        self.watch.begin("starting Postgres")
        postgres = self.start.stack.enter_context(embedded_postgres())
        self.start.redactor.learn([postgres.password])
        self.watch.done(f"Postgres {postgres.version}", f"{postgres.host}:{postgres.port}")
        self.dsn = postgres.dsn
        self.watch.begin("filling the shop")
        rows = {**create_shop(self.dsn), STOCK: create_stock(self.dsn, self.stock_rows)}
        self.rows = sum(rows.values())
        self.watch.done("A shop", f"{self.rows:,} rows in {len(rows)} tables")

    def start_pipeline(self) -> None:
        """What ``frazil run`` does, with this configuration."""
        self.running = self.start.start(self.folder.write_document(self.dsn), self.watch)

    def stream(self) -> None:
        """Copy and stream while the shop goes on, then let it rest until the lake has all."""
        watch = self.watch
        with self._workload(reshapes=False) as gentle:
            watch.follow(self.running.thread, gentle)
            watch.until_readable({f"{SCHEMA}.{name}": True for name in (*TABLES, STOCK)})
        watch.done("Copied", f"{self.rows:,} rows, while the shop went on")
        with self._workload(reshapes=True) as lively:
            watch.follow(self.running.thread, lively)
            # What came during the copy is no part of the usual lag.
            watch.until_caught_up()
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
        running = self.running
        lake = Lake(running.session, CATALOG)
        proof = TourProof(running.session, lake, running.config, running.thread)
        self.watch.begin("taking stock: one transaction, merged when it arrives")
        last = proof.take_stock(self.dsn, self.stock_rows, self.watch)
        self.watch.done(
            "Stocktaking", f"{last.changes:,} changes at once, merged in {last.seconds:.2f} s"
        )
        self.watch.begin("comparing every mirror with its table, row for row")
        proven = proof.verify()
        rows = sum(each.rows_found for each in proven)
        self.watch.done(
            "Proof", f"{rows:,} rows in {len(proven)} mirrors: each one is as in Postgres"
        )
        self.watch.begin("the same changes by MERGE INTO, on a copy")
        contest = proof.compare(last)
        self.watch.done("MERGE INTO", "the same rows, from the same changes")
        return TourResult(
            folder=self.folder,
            page=running.page,
            contest=contest,
            queries=pasted_queries(self.folder, table_location(lake, "shop.orders")),
        )


def _describe_counts(counts: ShopCounts) -> str:
    """What happened in the shop, with what is hardest to follow."""
    parts = [f"{counts.transactions:,} transactions"]
    if Happening.COLUMN_ADDED in counts.kinds:
        parts.append("a column added")
    if Happening.CARTS_EMPTIED in counts.kinds:
        parts.append("a table emptied")
    return ", ".join(parts)
