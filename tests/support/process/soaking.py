"""A pipeline as a process that is killed and started again, and services that come and go.

Everything is seen from outside: the process table, the page ``/status``, and ``frazil verify``.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import psutil

from frazil.demo.services import embedded_postgres, rest_catalog
from frazil.demo.tour.shop import ShopSize, create_shop
from frazil.demo.tour.shop_workload import ShopWorkload
from frazil.hooks import SystemClock
from tests.support.process.jvms import QUICK_JAVA
from tests.support.process.pipeline_process import PipelineProcess, free_port

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from frazil.demo.services import Postgres, RestCatalog

SAMPLE_SECONDS = 0.5
# What is called available.
LAG_SECONDS = 60.0
# A life shorter than this has no steady state to be compared with.
SETTLED_SECONDS = 20.0

# The soak is about changes; a copy that is seen is the demo's business.
_SHOP = ShopSize(customers=400, products=100, orders=1_200, carts=50)
_DOCUMENT = """
pipeline: soak
catalog: {{kind: rest, uri: '{uri}', warehouse: '{warehouse}'}}
source:
  kind: postgres
  dsn: '{dsn}'
  tables: ['shop.*']
ingest: {{interval: 1s}}
merge: {{interval: {merge_interval}}}
retry: {{base: 100ms, max: 2s}}
telemetry: {{listen: '127.0.0.1:{port}', log: {{format: json}}}}
spark:
  master: 'local[2]'
  conf: {{spark.sql.shuffle.partitions: '2', spark.driver.extraJavaOptions: '{java}'}}
"""


@dataclass(frozen=True)
class Use:
    """What one life of the process used at one moment."""

    at: float
    resident: int
    descriptors: int
    threads: int


@dataclass
class Life:
    """One start of the process until its end."""

    process: subprocess.Popen[bytes]
    began: float
    uses: list[Use] = field(default_factory=list)

    def sample(self, now: float) -> None:
        """Look at the driver and its Python workers; the JVM has its heap and takes what it may."""
        with suppress(psutil.Error):
            driver = psutil.Process(self.process.pid)
            if driver.status() == psutil.STATUS_ZOMBIE:
                return
            self.uses.append(
                Use(
                    at=now - self.began,
                    resident=driver.memory_info().rss,
                    descriptors=driver.num_fds(),
                    threads=driver.num_threads(),
                )
            )

    @property
    def settled(self) -> list[Use]:
        """After imports, caches and first connections."""
        return [each for each in self.uses if each.at > SETTLED_SECONDS]


class Soak:
    """Services, workload, pipeline and the watch over them; everything ends with the block."""

    def __init__(
        self, folder: Path, *, seed: int, transactions_per_second: float, merge_interval: str
    ) -> None:
        self._folder = folder
        self._merge_interval = merge_interval
        self._chance = random.Random(seed)  # noqa: S311 - repeatable on purpose
        self._rate = transactions_per_second
        self._clock = SystemClock()
        self._stack = ExitStack()
        self.lives: list[Life] = []
        self.events: list[str] = []
        self.lags: list[float] = []
        self._fresh: float | None = None
        self._ended = threading.Event()
        self._port = free_port()
        self.pipeline = PipelineProcess(folder, self._port)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.postgres: Postgres = stack.enter_context(embedded_postgres())
            self.catalog: RestCatalog = stack.enter_context(rest_catalog())
            create_shop(self.postgres.dsn, size=_SHOP)
            self.document.write_text(
                _DOCUMENT.format(
                    uri=self.catalog.uri,
                    warehouse=self.catalog.warehouse,
                    dsn=self.postgres.dsn,
                    merge_interval=self._merge_interval,
                    port=self._port,
                    java=QUICK_JAVA,
                )
            )
            self.workload = ShopWorkload(
                self.postgres.dsn,
                seed=self._chance.randrange(2**31),
                transactions_per_second=self._rate,
            )
            stack.enter_context(self.workload)
            stack.callback(self.pipeline.end)
            stack.callback(self._ended.set)
            self._stack = stack.pop_all()
        self._watch = threading.Thread(target=self._look_on, daemon=True)
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def document(self) -> Path:
        return self._folder / "frazil.yaml"

    @property
    def availability(self) -> float:
        """The share of time, from the first answer on, in which lag stayed below the bound."""
        known = [each < LAG_SECONDS for each in self.lags]
        return sum(known) / len(known) if known else 0.0

    def start(self) -> None:
        """The pipeline begins, or begins again."""
        self.lives.append(Life(self.pipeline.start(), self._clock.monotonic()))

    def kill(self) -> None:
        """The process dies in the middle of whatever it does; another one begins."""
        self._note("kill")
        self.pipeline.send(signal.SIGKILL)
        self.pipeline.wait()
        self.start()

    def pause_catalog(self) -> None:
        """The catalog answers nobody for some seconds, and then everybody at once."""
        seconds = self._chance.uniform(2.0, 5.0)
        self._note(f"catalog pauses {seconds:.1f} s")
        pid = self.catalog.service.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            self._clock.sleep(seconds)
        finally:
            os.kill(pid, signal.SIGCONT)

    def restart_postgres(self) -> None:
        """The server ends all sessions and comes back."""
        self._note("postgres restarts")
        self.postgres.restart()

    def disturb(self, seconds: float, *, every: float) -> None:
        """Each kind of event in turn at random moments, for so long."""
        until = self._clock.monotonic() + seconds
        events: list[Callable[[], None]] = []
        while self._clock.monotonic() < until:
            self._clock.sleep(self._chance.uniform(0.5, 1.5) * every)
            if not events:
                events = [self.kill, self.pause_catalog, self.restart_postgres]
                self._chance.shuffle(events)
            assert self.workload.is_running, "the workload failed"
            self.pipeline.require_alive()
            events.pop()()

    def wait_until_fresh(self) -> None:
        """Every table of the shop is in its mirror, up to a moment that lies after this one."""
        now = self._clock.monotonic()
        self.pipeline.wait_until(lambda: (self._fresh or 0.0) >= now, "caught up")

    def stop(self) -> int:
        """Ask the pipeline to end; how it did."""
        self.pipeline.send(signal.SIGTERM)
        return self.pipeline.wait()

    def verify(self) -> subprocess.CompletedProcess[str]:
        """``frazil verify``: every row of every table, source beside mirror."""
        return self.pipeline.command("verify")

    def _look_on(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            now = self._clock.monotonic()
            if self.lives:
                self.lives[-1].sample(now)
            lag = _longest_lag(self.pipeline.status())
            if lag is not None:
                self._fresh = max(self._fresh or 0.0, now - lag)
            if self._fresh is not None:
                # Nobody who does not answer has become fresher.
                self.lags.append(now - self._fresh)

    def _note(self, event: str) -> None:
        began = self.lives[0].began if self.lives else self._clock.monotonic()
        self.events.append(f"{self._clock.monotonic() - began:6.1f} s  {event}")


def _longest_lag(status: dict[str, object] | None) -> float | None:
    """Of all tables; None while one of them is unknown."""
    tables = None if status is None else status["tables"]
    if not isinstance(tables, list) or not tables:
        return None
    lags = [each["lag_seconds"] for each in tables]
    return None if None in lags else max(lags)
