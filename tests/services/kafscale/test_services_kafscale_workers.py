"""Workers that are killed, paused and stopped at random never hold a partition together."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from frazil.sources.kafscale.coordination.keys import CoordinationKeys, parse_offset
from frazil.sources.kafscale.segments.object_keys import TopicPartition
from tests.support.kafscale.etcd_history import history, value_at
from tests.support.process import lease_worker
from tests.support.sampling import a_seed
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from frazil.demo.services import EtcdServer
    from tests.support.kafscale.etcd_history import Event

pytestmark = pytest.mark.services

COUNT = 12
WORKERS = 3
FAULTS = 6
TTL_SECONDS = 1.0


class Workers:
    """Processes that come and go; each has a number of its own."""

    def __init__(self, endpoint: str, prefix: str, folder: Path) -> None:
        self._arguments = (endpoint, prefix)
        self._folder = folder
        self._number = 0
        self.running: dict[int, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        self._number += 1
        number = self._number
        command = [sys.executable, "-m", "tests.support.process.lease_worker", *self._arguments]
        output, errors = (self._folder / f"{number}.{kind}" for kind in ("out", "err"))
        with output.open("wb") as said, errors.open("wb") as complained:
            self.running[number] = subprocess.Popen(
                [*command, str(number), str(COUNT), str(TTL_SECONDS)],
                stdout=said,
                stderr=complained,
                cwd=Path(__file__).parents[3],
            )

    def interfere(self, chance: random.Random) -> None:
        """Pause one past its lease, end one in order, or kill it; another takes its place."""
        number, process = chance.choice(sorted(self.running.items()))
        fault = chance.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
        process.send_signal(fault)
        if fault is signal.SIGSTOP:
            time.sleep(TTL_SECONDS * chance.uniform(0.5, 2.5))
            process.send_signal(signal.SIGCONT)
            return
        process.wait(60)
        del self.running[number]
        self.start()

    def stop(self) -> None:
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            assert process.wait(60) == 0

    def looks(self) -> list[tuple[int, int, dict[int, int]]]:
        """What each worker saw of its claims: when, who, and the revision of each."""
        seen = []
        for file in self._folder.glob("*.out"):
            # A line of a worker that was killed may be cut off.
            for line in file.read_text().splitlines(keepends=True):
                if line.endswith("\n") and isinstance((look := json.loads(line))[1], dict):
                    claims = {int(each): revision for each, revision in look[1].items()}
                    seen.append((look[0], int(file.stem), claims))
        return sorted(seen, key=lambda look: look[0])


@pytest.mark.fault("L1", "L4", "L5")
def test_three_workers_share_twelve_partitions_through_kills_and_pauses(
    etcd: EtcdServer, tmp_path: Path
) -> None:
    chance = random.Random(a_seed())  # noqa: S311 - repeatable on purpose
    keys = CoordinationKeys(f"test-{uuid.uuid4().hex}")
    workers = Workers(etcd.endpoint, keys.prefix, tmp_path)
    partitions = [TopicPartition(lease_worker.TOPIC, each) for each in range(COUNT)]
    try:
        for _ in range(WORKERS):
            workers.start()
        wait_until(lambda: len(workers.looks()) > 2 * WORKERS)
        for _ in range(FAULTS):
            time.sleep(chance.uniform(0, TTL_SECONDS))
            workers.interfere(chance)
        wait_until(lambda: shares(workers) == [COUNT // WORKERS] * WORKERS)
    finally:
        workers.stop()
    check_history(history(etcd.endpoint, keys.prefix), keys)
    check_what_workers_saw(workers.looks())
    smallest = min(
        parse_offset("", value_at(etcd.endpoint, keys.watermark(each)) or b"")
        for each in partitions
    )
    written = value_at(etcd.endpoint, keys.topic_watermark(lease_worker.TOPIC)) or b""
    assert parse_offset("", written) <= smallest


def shares(workers: Workers) -> list[int]:
    """How many partitions each running worker saw last."""
    last = {number: len(claims) for _, number, claims in workers.looks()}
    return [last.get(number, 0) for number in workers.running]


def check_history(events: list[Event], keys: CoordinationKeys) -> None:
    """A claim changes hands only over its end, and only its holder moves the offset, forward."""
    holders: dict[str, tuple[str, int]] = {}
    offsets: dict[str, int] = defaultdict(lambda: -1)
    moved = 0
    for event in events:
        kind, _, partition = event.key.removeprefix(f"{keys.prefix}/").partition("/")
        if kind == "leases" and event.value is None:
            del holders[partition]
        elif kind == "leases":
            claim = (json.loads(event.value or b"")["owner_id"], event.lease)
            assert holders.setdefault(partition, claim) == claim, f"{partition} was stolen"
        elif kind == "offsets":
            offset = parse_offset(event.key, event.value or b"")
            assert holders[partition][0] == f"w{offset % lease_worker.STEP}", event
            assert offset > offsets[partition], event
            offsets[partition] = offset
            moved += 1
    assert holders == {}, "workers that were stopped in order left claims behind"
    assert moved > COUNT


def check_what_workers_saw(looks: list[tuple[int, int, dict[int, int]]]) -> None:
    """No worker believed to have a claim after another one had the next."""
    current: dict[int, int] = {}
    for _, number, claims in looks:
        for partition, revision in claims.items():
            assert revision >= current.get(partition, 0), (
                f"worker {number} held {partition} too long"
            )
            current[partition] = revision
