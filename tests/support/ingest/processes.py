"""Processes that run ``frazil ingest`` and are killed, and a watch on the slot."""

from __future__ import annotations

import json
import random
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

import psycopg

from frazil.hooks import FAILPOINTS_VARIABLE
from frazil.model.marker import MarkerRole
from frazil.model.postgres.lsn import parse_lsn
from tests.support.process.pipeline_process import ENVIRONMENT, PROGRAM

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.support.ingest.captured import CapturedDatabase

# Far above what a busy machine needs to start a JVM, or to come to any point of a batch.
PATIENCE_SECONDS = 300.0

# Where a copy has read nothing yet, has written all of it, and has committed a part of it.
COPY_POINTS = ("ingest.planned@1", "ingest.written@1", "ingest.committed@2", "commit.landed@3")
# Files written, before the commit; landed, with an unknown outcome; between two tables; recorded
# but not acknowledged; acknowledged.
STREAM_POINTS = (
    "ingest.written",
    "commit.staged",
    "commit.landed",
    "ingest.committed",
    "ingest.recorded",
    "ingest.acknowledged",
)


_RECORDED = re.compile(r"batch ingested|tables (?:read|copied)")


@dataclass(frozen=True)
class Kill:
    """When a process dies: at a point of its work, or so many seconds after it began.

    If it ``works``, the seconds are counted from the first thing that it did.
    """

    seconds: float
    point: str | None = None
    works: bool = False

    @property
    def failpoints(self) -> str:
        if self.point is None:
            return ""
        name, _, at = self.point.partition("@")
        return f"{name}=kill@{at or 1}"


def plan_kills(count: int, *, seed: int) -> list[Kill]:
    """The first one in the copy, the others anywhere; half of them by the clock."""
    chance = random.Random(seed)  # noqa: S311 - repeatable on purpose
    kills = [Kill(PATIENCE_SECONDS, chance.choice(COPY_POINTS))]
    for _ in range(count - 1):
        if chance.random() < 0.5:
            kills.append(Kill(chance.uniform(0.0, 2.0), works=chance.random() < 0.75))
        else:
            point = f"{chance.choice(STREAM_POINTS)}@{chance.randint(1, 6)}"
            kills.append(Kill(PATIENCE_SECONDS, point))
    return kills


class IngestProcess:
    """``frazil ingest`` with its JVM up, waiting for the signal to begin."""

    def __init__(self, document: Path, kill: Kill, *, number: int) -> None:
        self.kill = kill
        self._gate = document.with_name(f"gate-{document.stem}-{number}")
        self._gate.touch()
        self.log = document.with_name(f"ingest-{document.stem}-{number}.log")
        hold = f"session.started=hold({self._gate})@1"
        rules = ";".join(filter(None, (hold, kill.failpoints)))
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, "ingest", "-c", str(document)],
                env={**ENVIRONMENT, FAILPOINTS_VARIABLE: rules},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Its JVM and its workers die with it, and no other process does.
                start_new_session=True,
            )

    def wait_until_ready(self) -> None:
        """Spark is there."""
        reached = self._gate.with_name(f"{self._gate.name}.reached")
        self._wait_until(reached.exists)

    def run_to_its_death(self) -> str:
        """Let it work until it dies; how it did."""
        self._gate.unlink()
        if self.kill.works:
            self._wait_until(lambda: _RECORDED.search(self.log.read_text()) is not None)
        try:
            self.process.wait(self.kill.seconds)
        except subprocess.TimeoutExpired:
            assert self.kill.point is None, self.log.read_text()
            self.process.kill()
            self.process.wait()
            since = "its first batch" if self.kill.works else "its beginning"
            return f"killed {self.kill.seconds:.1f} s after {since}"
        assert self.process.returncode == -signal.SIGKILL, self.log.read_text()
        return f"killed at {self.kill.point}"

    def _wait_until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_so():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)

    def close(self) -> None:
        """Nothing of it stays."""
        self._gate.unlink(missing_ok=True)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@dataclass
class SlotWatch:
    """Compares slot and ledger all the time: the slot is never ahead.

    The ledger is read as its catalog has it, without a session of Spark's.
    """

    world: CapturedDatabase
    checks: int = 0
    moves: set[int] = field(default_factory=set)
    problem: str | None = None

    def __post_init__(self) -> None:
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="slot watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(120)
        assert self.problem is None, self.problem

    def _watch(self) -> None:
        slot = f"{self.world.document['pipeline']}_frazil"
        query = "select confirmed_flush_lsn::text from pg_replication_slots where slot_name = %s"
        has_begun = False
        try:
            with psycopg.connect(self.world.database.dsn.value, autocommit=True) as connection:
                while not self._end.wait(0.03):
                    # The slot first: the ledger may only have gone on since.
                    row = connection.execute(query.encode(), (slot,)).fetchone()
                    recorded = recorded_position(self.world)
                    has_begun = has_begun or recorded is not None
                    if row is not None and row[0] is not None and has_begun:
                        self._judge(parse_lsn(row[0]), recorded)
        except Exception as error:  # noqa: BLE001 - reported to the test
            self.problem = repr(error)

    def _judge(self, confirmed: int, recorded: int | None) -> None:
        self.checks += 1
        self.moves.add(confirmed)
        if recorded is None or confirmed > recorded:
            self.problem = f"the slot is at {confirmed:X}, and the ledger at {recorded or 0:X}"


def recorded_position(world: CapturedDatabase) -> int | None:
    """What the newest metadata of the ledger says, straight from the files."""
    catalog = str(world.document["catalog"]["uri"]).removeprefix("sqlite:///")
    name = f"{world.document['pipeline']}_ledger"
    if not Path(catalog).exists():
        return None
    with closing(sqlite3.connect(f"file:{catalog}?mode=ro", uri=True, timeout=120)) as connection:
        try:
            row = connection.execute(
                "select metadata_location from iceberg_tables where table_name = ?", (name,)
            ).fetchone()
        except sqlite3.OperationalError:
            return None
    if row is None:
        return None
    metadata = json.loads(Path(urlsplit(row[0]).path).read_text())
    marker = metadata["properties"].get(MarkerRole.INGEST.property_name)
    if marker is None:
        return None
    position = json.loads(marker)["position"]
    return parse_lsn(position) if position else None


def kill_all(document: Path, kills: Sequence[Kill], *, first: int = 0) -> list[str]:
    """One process after the other, each with its end; the next one's JVM starts meanwhile."""
    ends: list[str] = []
    waiting: list[IngestProcess] = []
    numbered = iter(enumerate(kills, start=first))

    def prepare_next() -> None:
        waiting.extend(
            IngestProcess(document, kill, number=number) for number, kill in islice(numbered, 1)
        )

    try:
        prepare_next()
        while waiting:
            current = waiting[0]
            current.wait_until_ready()
            prepare_next()
            ends.append(current.run_to_its_death())
            waiting.remove(current)
    finally:
        for each in waiting:
            each.close()
    return ends
