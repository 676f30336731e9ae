"""A process of its own that claims partitions and writes offsets, for tests that stop or kill it.

``python lease_worker.py ENDPOINT PREFIX NUMBER COUNT TTL``: shares COUNT partitions with its like,
and moves the offset of each that it holds, as fast as it can. The last digits of an offset are the
worker's NUMBER. Prints a line for each look at what it holds: the time, and the claims.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from datetime import timedelta

from frazil.clients.etcd.client import Etcd
from frazil.errors import LeaseLostError, SourceUnavailableError
from frazil.sources.kafscale.coordination.keys import CoordinationKeys
from frazil.sources.kafscale.coordination.leases import PartitionLeases
from frazil.sources.kafscale.coordination.offsets import PartitionOffsets
from frazil.sources.kafscale.segments.object_keys import TopicPartition

STEP = 1000
TOPIC = "orders"
PAUSE_SECONDS = 0.02


def work(endpoint: str, prefix: str, number: int, count: int, ttl: float) -> None:
    """Until the process is asked to stop."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    etcd, keys = Etcd([endpoint]), CoordinationKeys(prefix)
    partitions = [TopicPartition(TOPIC, each) for each in range(count)]
    with PartitionLeases(
        etcd, keys, owner=f"w{number}", topics=[TOPIC], ttl=timedelta(seconds=ttl)
    ) as leases:
        offsets = PartitionOffsets(etcd, keys, leases)
        while not stopping.wait(PAUSE_SECONDS):
            try:
                leases.rebalance(partitions)
                looked_at = time.monotonic_ns()
                held = {each: leases.fence(each) for each in leases.held()}
                claims = {each.partition: fence[0].value for each, fence in held.items() if fence}
                print(json.dumps([looked_at, claims]), flush=True)  # noqa: T201
                stored = offsets.load(held)
                offsets.write(
                    {each: (at // STEP + 1) * STEP + number for each, at in stored.items()}
                )
            except (LeaseLostError, SourceUnavailableError) as error:
                print(json.dumps([time.monotonic_ns(), str(error)]), flush=True)  # noqa: T201


if __name__ == "__main__":
    work(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
