"""Two small tables that are captured, whose every change is remembered by the one who made it."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from frazil.pipeline.capture import build_capture, build_ingest_loop
from frazil.pipeline.loops.loop import StopRequest
from tests.support.ingest.captured import captured_database
from tests.support.ingest.living_tables import LivingTable, check_changelog
from tests.support.ingest.processes import recorded_position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.demo.services import Postgres
    from frazil.ingest.report import BatchReport
    from frazil.pipeline.capture import Capture
    from frazil.pipeline.next_step import NextStep
    from tests.support.ingest.captured import CapturedDatabase
    from tests.support.ingest.living_tables import Done

TABLES = ("left_shelf", "right_shelf")
# Far above what a busy machine needs, far below pytest's own limit.
PATIENCE_SECONDS = 300.0


@dataclass
class Shop:
    """The database and what was done to its two tables."""

    world: CapturedDatabase
    tables: dict[str, LivingTable] = field(
        default_factory=lambda: {name: LivingTable(name, ("id",)) for name in TABLES}
    )
    number: int = 0

    def open(self) -> None:
        """Create the tables, with a row each."""
        for name, table in self.tables.items():
            self.world.run(
                f"create table {name} (id int primary key, version int, body text)",
                f"insert into {name} values (1, 1, 'first')",
            )
            table.apply([("INSERT", (1,), 1)])

    def change(self) -> None:
        """One transaction that inserts, updates and deletes in both tables."""
        self.number += 10
        new, gone = self.number, self.number - 10
        statements = []
        for name, table in self.tables.items():
            statements += [
                f"insert into {name} values ({new}, 1, 'new'), ({new + 1}, 1, 'new')",
                f"update {name} set version = 2 where id = {new}",
                f"delete from {name} where id = {gone}",
            ]
            changes: list[Done] = [("INSERT", (new,), 1), ("INSERT", (new + 1,), 1)]
            changes.append(("UPDATE", (new,), 2))
            table.apply(changes + ([("DELETE", (gone,), None)] if gone else []))
        self.world.in_transaction(*statements)

    def check(self) -> None:
        """Everything since the copy is in the changelogs, once and in order."""
        self.world.ingest()
        for name, table in self.tables.items():
            check_changelog(self.world.changelog_rows(name), table)

    def check_mirrors(self) -> None:
        """So it is, and the mirrors are what the source is."""
        self.check()
        self.world.merge(*TABLES)
        self.world.assert_mirrored(*TABLES)

    @property
    def slot(self) -> str:
        """The slot, which is called as the publication is."""
        return f"{self.world.document['pipeline']}_frazil"

    def end_sessions(self) -> None:
        """As an administrator would; those of the pipeline only."""
        self.world.run(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where application_name like 'frazil %' and datname = current_database()"
        )

    @contextmanager
    def running(self) -> Iterator[Running]:
        """An ingest that goes on by itself until the block ends."""
        # So that the position follows what no one captures, too.
        before = self.world.document["source"].get("heartbeat", "60s")
        self.world.reconfigure(source={"heartbeat": "300ms"}, ingest={"interval": "100ms"})
        run = Running(self.world, build_capture(self.world.spark, self.world.config))
        run.start()
        try:
            yield run
        finally:
            run.finish()
            self.world.reconfigure(source={"heartbeat": before})


class Running(threading.Thread):
    """``frazil ingest`` in a thread: both loops, until stopped."""

    def __init__(self, world: CapturedDatabase, capture: Capture) -> None:
        super().__init__(name="ingest", daemon=True)
        self._world = world
        self.capture = capture
        self.reports: list[BatchReport] = []
        self.failures: list[Exception] = []
        self.ended_with: BaseException | None = None
        self._stop_event = StopRequest()
        self._loop = build_ingest_loop(
            world.spark,
            world.config,
            capture,
            stop=self._stop_event,
            on_report=self.reports.append,
            on_error=self._fail,
        )

    def run(self) -> None:
        try:
            self._loop.run()
        except BaseException as error:  # noqa: BLE001 - reported to the test
            self.ended_with = error

    def finish(self) -> None:
        self._stop_event.set()
        self.join(PATIENCE_SECONDS)
        assert not self.is_alive()

    def wait_for(self, what: Callable[[], bool]) -> None:
        """Until it is so; the loop may not end before."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not what():
            assert self.ended_with is None, self.ended_with
            assert time.monotonic() < deadline, self.failures
            time.sleep(0.02)

    def wait_for_the_end(self) -> BaseException:
        """What ended it."""
        self.join(PATIENCE_SECONDS)
        assert self.ended_with is not None, self.failures
        return self.ended_with

    def wait_until_recorded(self) -> None:
        """All that is at the source now is in the ledger."""
        now = int(str(self._world.ask("select pg_current_wal_lsn() - '0/0'::pg_lsn")))
        self.wait_for(lambda: (recorded_position(self._world) or 0) >= now)

    def _fail(self, error: Exception, _step: NextStep) -> None:
        self.failures.append(error)


@contextmanager
def open_shop(
    spark: SparkSession, server: Postgres, folder: Path, **document: Any
) -> Iterator[Shop]:
    """The tables have a row each; nothing was read yet."""
    with captured_database(spark, server, folder, **document) as world:
        shop = Shop(world)
        shop.open()
        yield shop
