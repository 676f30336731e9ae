"""A stream at the rate of the server itself, for as long as the budget lasts: nothing grows."""

from __future__ import annotations

import os
import statistics
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil
import psycopg
import pytest

from frazil.hooks import SystemClock
from frazil.model.postgres.lsn import parse_lsn
from frazil.pipeline.capture import build_capture, build_ingest_loop
from frazil.pipeline.loops.loop import StopRequest
from tests.spark.conftest import lake_config, spark
from tests.support.ingest.captured import captured_database

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.demo.services import Postgres
    from frazil.ingest.report import BatchReport
    from frazil.pipeline.capture import Capture
    from tests.support.ingest.captured import CapturedDatabase

__all__ = ["lake_config", "spark"]

pytestmark = [
    pytest.mark.deep,
    pytest.mark.spark,
    pytest.mark.services,
    # PySpark leaves the sockets of ``collect()`` to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

# Five minutes, or a third of the budget if that is less.
SECONDS = min(300.0, float(os.environ.get("FRAZIL_DEEP_SECONDS", "60")) / 3)
SAMPLE_SECONDS = 2.0
ROWS_A_TRANSACTION = 100
# A batch more or less is no growth.
LAG_ROOM_BYTES = 64 * 2**20
# What allocators and caches take until they have what they want.
MEMORY_ROOM_BYTES = 200 * 2**20


@dataclass(frozen=True)
class Sample:
    lag: int
    memory: int


class Writer(threading.Thread):
    """Writes as fast as one connection can, and waits for the reader as a full disk would."""

    def __init__(self, world: CapturedDatabase, capture: Capture) -> None:
        super().__init__(daemon=True)
        self._dsn = world.database.dsn.value
        self._capture = capture
        self.stopped = threading.Event()
        self.rows = 0

    def run(self) -> None:
        statement = (
            "insert into events select i, 'name ' || i, i * 1.25, now() "
            "from generate_series(%s::int8, %s::int8) i on conflict (id) do update "
            "set name = excluded.name, seen = excluded.seen"
        )
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            while not self.stopped.is_set():
                # The reader is the walsender's pace: more than this would only fill the disk.
                newest = connection.execute("select pg_current_wal_flush_lsn()::text").fetchone()
                assert newest is not None
                if _behind(self._capture, newest[0]) > LAG_ROOM_BYTES:
                    self.stopped.wait(0.05)
                    continue
                first = (self.rows * 7) % 500_000
                connection.execute(statement, (first, first + ROWS_A_TRANSACTION - 1))
                self.rows += ROWS_A_TRANSACTION


def test_lag_and_memory_stay_flat_at_the_servers_own_rate(
    spark: SparkSession, postgres: Postgres, tmp_path: Path
) -> None:
    with captured_database(spark, postgres, tmp_path, ingest={"interval": "1s"}) as world:
        world.run(
            "create table events (id int8 primary key, name text, price numeric(12,2), "
            "seen timestamptz)"
        )
        world.ingest()
        capture = build_capture(spark, world.config)
        stop = StopRequest()
        ingested: list[int] = []

        def record(report: BatchReport) -> None:
            ingested.append(report.rows)

        loop = build_ingest_loop(
            spark, world.config, capture, stop=stop, on_report=record, on_error=_fail
        )
        running = threading.Thread(target=loop.run, daemon=True)
        writer = Writer(world, capture)
        running.start()
        writer.start()
        samples = _sample(capture)
        writer.stopped.set()
        writer.join()
        stop.set()
        running.join()
        rate = sum(ingested) / SECONDS
        print(f"{rate:,.0f} rows a second for {SECONDS:.0f} s")  # noqa: T201
        world.catch_up()
        world.assert_mirrored("events")
    _assert_flat(samples)


def _sample(capture: Capture) -> list[Sample]:
    clock = SystemClock()
    began = clock.monotonic()
    samples = []
    while clock.monotonic() - began < SECONDS:
        clock.sleep(SAMPLE_SECONDS)
        newest = str(capture.source.newest())
        samples.append(Sample(_behind(capture, newest), _resident()))
    return samples


def _behind(capture: Capture, newest: str) -> int:
    reached = capture.source.reached
    return parse_lsn(newest) - reached if isinstance(reached, int) else 0


def _resident() -> int:
    """Of this process and of Spark's Python workers; the JVM's heap has its own bound."""
    driver = psutil.Process()
    found = int(driver.memory_info().rss)
    for each in driver.children(recursive=True):
        # One that ends meanwhile has nothing.
        with suppress(psutil.Error):
            if "python" in each.name():
                found += int(each.memory_info().rss)
    return found


def _assert_flat(samples: list[Sample]) -> None:
    third = len(samples) // 3
    middle, last = samples[third : 2 * third], samples[2 * third :]
    for name, room in (("lag", LAG_ROOM_BYTES), ("memory", MEMORY_ROOM_BYTES)):
        before = statistics.median(getattr(each, name) for each in middle)
        after = statistics.median(getattr(each, name) for each in last)
        print(f"{name}: {before / 2**20:.0f} MiB, then {after / 2**20:.0f} MiB")  # noqa: T201
        assert after <= before + room, f"{name} grows"


def _fail(error: Exception, _step: object) -> None:
    raise AssertionError(error)
