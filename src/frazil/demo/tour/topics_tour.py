"""The tour of topics: segments in an object store become tables, and the result is verified."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.clients.iceberg.lake import Lake
from frazil.clients.spark.java import find_java
from frazil.demo.services import etcd, seaweedfs
from frazil.demo.tour.lake_folder import CATALOG, lake_folder, pasted_queries
from frazil.demo.tour.proof import table_location
from frazil.demo.tour.topic_workload import TopicCounts, TopicWorkload
from frazil.demo.tour.topics import CUSTOMERS, ORDERS, TOPICS
from frazil.demo.tour.tour_pipeline import PipelineStart
from frazil.demo.tour.watch import Pace, TourWatch
from frazil.errors import ServiceError
from frazil.model.table_name import parse_table_name
from frazil.pipeline.verification import build_record_verifier

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from frazil.demo.tour.lake_folder import LakeFolder, PastedQuery
    from frazil.demo.tour.topics import Customer
    from frazil.demo.tour.tour_pipeline import Serve, TourPipeline
    from frazil.demo.tour.watch import Audience
    from frazil.telemetry.redaction import Redactor

_BUCKET = "segments"
_ORDERS_TABLE, _CUSTOMERS_TABLE = "shop.orders", "shop.customers"
_DEFECT = "report it, this is a defect in frazil"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsResult:
    """What was proven, and where to find it."""

    folder: LakeFolder
    page: str
    segment: str
    queries: tuple[PastedQuery, ...]


@contextmanager
def touring_topics(
    path: Path,
    *,
    audience: Audience,
    redactor: Redactor,
    serve: Serve,
    pace: Pace | None = None,
) -> Iterator[TopicsResult]:
    """Take the tour; services, pipeline and pages run until the block is left.

    The lake stays in the folder once it is proven; nothing stays otherwise. Raises ServiceError
    when tables are not what the topics hold.
    """
    # What the machine lacks is said before anything is started.
    find_java()
    with ExitStack() as stack:
        folder = stack.enter_context(lake_folder(path))
        watch = TourWatch(audience, pace or Pace(), TopicCounts())
        tour = _TopicsTour(watch, PipelineStart(stack, folder, redactor, serve))
        try:
            result = tour.take()
            folder.stays = True
            yield result
        except BaseException as error:
            # Before everything is taken down, which takes some seconds.
            audience.leave(error)
            raise


@dataclass(frozen=True, slots=True)
class _TopicsTour:
    watch: TourWatch[TopicCounts]
    start: PipelineStart

    def take(self) -> TopicsResult:
        """One step after the other."""
        stack, watch = self.start.stack, self.watch
        watch.begin("starting an object store")
        store = stack.enter_context(seaweedfs(bucket=_BUCKET))
        self.start.redactor.learn([store.access_key, store.secret_key])
        watch.done("Object store", f"SeaweedFS at {store.endpoint}")
        watch.begin("starting etcd")
        server = stack.enter_context(etcd())
        watch.done("etcd", server.endpoint)
        workload = TopicWorkload(store, seed=watch.pace.seed)
        watch.begin("writing segments")
        workload.fill()
        watch.done("Two topics", f"{workload.counts.full}, with every codec of Kafka")
        loaded = self.start.folder.write_topics_document(store, server)
        running = self.start.start(loaded, watch)
        self._stream(running, workload)
        lake = Lake(running.session, CATALOG)
        watch.begin("comparing every table with its topic")
        self._prove_orders(running, lake, workload)
        self._prove_customers(running, workload.customers)
        return TopicsResult(
            folder=self.start.folder,
            page=running.page,
            segment=f"s3://{_BUCKET}/{workload.newest_key}",
            queries=pasted_queries(self.start.folder, table_location(lake, _ORDERS_TABLE)),
        )

    def _stream(self, running: TourPipeline, workload: TopicWorkload) -> None:
        """Capture while more arrives, then wait until the lake has all."""
        watch, before = self.watch, workload.counts
        with workload:
            watch.follow(running.thread, workload)
            watch.until_readable(TOPICS)
            watch.done("Captured", f"{before.records:,} records, while more arrived")
            watch.until_caught_up()
            watch.stream(workload)
        watch.until_caught_up()
        watch.settle()
        more = workload.counts.records - before.records
        watch.done("Streamed", f"{more:,} records; usually {watch.usual_lag:.1f} s behind")

    def _prove_orders(self, running: TourPipeline, lake: Lake, workload: TopicWorkload) -> None:
        """Every record of the segments is a row, or a dead letter."""
        verifier = build_record_verifier(running.session, lake, running.config)
        if verifier is None:
            raise TypeError(running.config.source)
        verdict = verifier.verify(parse_table_name(_ORDERS_TABLE, catalog=CATALOG), ORDERS)
        counts = workload.counts_of(ORDERS)
        rows = counts.records - counts.damaged
        found = verdict.rows_expected, verdict.rows_found
        if not verdict.agrees or found != (counts.records, rows):
            message = f"{_ORDERS_TABLE} is not what topic {ORDERS} is: {verdict.note}"
            raise ServiceError(message, next_step=_DEFECT)
        self.watch.done(
            "Proof",
            f"{rows:,} rows in {_ORDERS_TABLE}: each record in the segments is one, "
            f"{counts.damaged} is a dead letter",
        )

    def _prove_customers(self, running: TourPipeline, expected: dict[int, Customer]) -> None:
        """The mirror is what the producer knows."""
        session, name = running.session, f"{CATALOG}.{_CUSTOMERS_TABLE}"
        session.sql(f"refresh table {name}")
        query = f"select id, name, city, points from {name}"  # noqa: S608 - a constant
        rows = session.sql(query).collect()
        if len(rows) != len(expected) or {row[0]: tuple(row[1:]) for row in rows} != expected:
            message = f"{_CUSTOMERS_TABLE} is not what the events of {CUSTOMERS} come to."
            raise ServiceError(message, next_step=_DEFECT)
        self.watch.done(
            "Proof", f"{len(rows):,} rows in {_CUSTOMERS_TABLE}: as the change events come to"
        )
