"""Processes that capture one topic together, and what happens to them meanwhile.

Segments, leases, offsets and tables are on real servers, and seen there without our own clients.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError

from frazil.hooks import SystemClock
from frazil.model.marker import MarkerRole
from frazil.sources.kafscale.coordination.keys import CoordinationKeys
from frazil.sources.kafscale.segments.object_keys import TopicPartition
from tests.support.kafscale.segments import Message
from tests.support.process.jvms import QUICK_JAVA
from tests.support.process.pipeline_process import ENVIRONMENT, PATIENCE_SECONDS, PROGRAM

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyiceberg.table import Table

    from frazil.demo.services import EtcdServer, ObjectStore, RestCatalog
    from tests.support.kafscale.broker import Broker

TOPIC, TABLE = "orders", "orders"
LEASE_SECONDS = 3
COMPRESSIONS = range(5)
# Between two segments, and between those beyond the number that was asked for: the broker shall not
# be what the machine is busy with.
_PAUSE_SECONDS, _LONG_PAUSE_SECONDS = 0.02, 0.2


def value_of(partition: int, offset: int) -> bytes:
    """The record at an offset: no two are equal."""
    return b'{"place": "%d-%d"}' % (partition, offset)


@dataclass(frozen=True, kw_only=True)
class TopicServices:
    """The servers, and a namespace of its own on each of them."""

    store: ObjectStore
    etcd: EtcdServer
    catalog: RestCatalog
    name: str

    @classmethod
    def on(cls, store: ObjectStore, etcd: EtcdServer, catalog: RestCatalog) -> TopicServices:
        return cls(store=store, etcd=etcd, catalog=catalog, name=f"w_{uuid4().hex[:8]}")

    @property
    def keys(self) -> CoordinationKeys:
        return CoordinationKeys(self.name)

    def document(self, broker: Broker) -> dict[str, Any]:
        """The configuration of every worker."""
        store, catalog = self.store, self.catalog
        return {
            "pipeline": self.name,
            "catalog": {"kind": "rest", "uri": catalog.uri, "warehouse": catalog.warehouse},
            "storage": {
                "s3": {
                    "endpoint": store.endpoint,
                    "region": store.region,
                    "path_style": True,
                    "access_key_id": store.access_key,
                    "secret_access_key": store.secret_key,
                }
            },
            "source": {
                "kind": "kafscale",
                "bucket": store.bucket,
                "namespace": broker.namespace,
                # What brokers say in etcd is about all of its namespaces.
                "discovery": "s3",
                "offsets": {"key_prefix": self.name, "lease_ttl": f"{LEASE_SECONDS}s"},
                "etcd": {"endpoints": [self.etcd.endpoint]},
                "topics": [
                    {
                        "topic": TOPIC,
                        "table": f"{self.name}.{TABLE}",
                        "columns": [{"name": "place", "type": "string"}],
                    }
                ],
            },
            "ingest": {"interval": "200ms"},
            "retry": {"base": "100ms", "max": "1s"},
            "telemetry": {"listen": "127.0.0.1:0", "log": {"format": "json"}},
            "spark": {
                "master": "local[1]",
                "conf": {
                    "spark.driver.memory": "512m",
                    "spark.sql.shuffle.partitions": "1",
                    "spark.driver.extraJavaOptions": QUICK_JAVA,
                },
            },
        }

    def table(self) -> Table | None:
        """As anybody finds it; None before there is one."""
        properties = {"type": "rest", "uri": self.catalog.uri, **self.store.io_properties()}
        with load_catalog(self.name, **properties) as catalog, suppress(NoSuchTableError):
            return catalog.load_table((self.name, TABLE))
        return None

    def offsets(self) -> dict[str, int]:
        """Of the table's marker."""
        table = self.table()
        marker = None if table is None else table.properties.get(MarkerRole.INGEST.property_name)
        return {} if marker is None else dict(json.loads(marker)["position"])


class Production:
    """A broker that writes small segments, at least so many and until it is stopped."""

    def __init__(self, broker: Broker, *, partitions: int, segments: int, seed: int) -> None:
        self.broker = broker
        self._partitions = [TopicPartition(TOPIC, number) for number in range(partitions)]
        self._chance = random.Random(seed)  # noqa: S311 - repeatable on purpose
        self._segments = segments
        self._may_end = threading.Event()
        self._thread = threading.Thread(target=self._write, name="broker", daemon=True)
        self.written = 0

    def __enter__(self) -> Self:
        for partition in self._partitions:
            self._produce(partition)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._segments = 0
        self.finish()

    def finish(self) -> None:
        """Write what is left of the number."""
        self._may_end.set()
        self._thread.join()

    @property
    def offsets(self) -> dict[str, int]:
        """Where each partition ends."""
        return {str(each): self.broker.next_offsets[each] for each in self._partitions}

    def _write(self) -> None:
        while self.written < self._segments or not self._may_end.wait(_LONG_PAUSE_SECONDS):
            self._may_end.wait(_PAUSE_SECONDS)
            self._produce(self._chance.choice(self._partitions))

    def _produce(self, partition: TopicPartition) -> None:
        base = self.broker.next_offsets[partition]
        offsets = range(base, base + self._chance.randint(5, 15))
        messages = [Message(value_of(partition.partition, at)) for at in offsets]
        compression = self._chance.choice(COMPRESSIONS)
        self.broker.produce(partition, messages, compression=compression)
        self.written += 1


class TopicWorkers:
    """``frazil ingest`` in several processes, of which some are killed, paused and stopped."""

    def __init__(self, document: Mapping[str, Any], folder: Path) -> None:
        self._folder = folder
        self._document = folder / "frazil.yaml"
        self._document.write_text(json.dumps(document))
        self._clock = SystemClock()
        self._began = self._clock.monotonic()
        self._number = 0
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self.events: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.running.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(PATIENCE_SECONDS)

    def start(self) -> None:
        """One more."""
        self._number += 1
        with self.log(self._number).open("wb") as log:
            self.running[self._number] = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, "ingest", "-c", str(self._document)],
                env=ENVIRONMENT,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A pause is one of its JVM, too.
                start_new_session=True,
            )

    def log(self, number: int) -> Path:
        return self._folder / f"worker-{number}.log"

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Something becomes true while all of them go on."""
        deadline = self._clock.monotonic() + PATIENCE_SECONDS
        while not is_so():
            for number, process in self.running.items():
                assert process.poll() is None, self.log(number).read_text()[-3000:]
            assert self._clock.monotonic() < deadline, self.events
            # What looks on shall not be what the machine is busy with.
            self._clock.sleep(0.3)

    def wait_until_all_work(self) -> None:
        """Each of them has committed something."""
        self.wait_until(
            lambda: all(b'"batch ingested"' in self.log(each).read_bytes() for each in self.running)
        )
        self._note("all work")

    def interfere(
        self, fault: signal.Signals, chance: random.Random, *, replaces: bool = True
    ) -> None:
        """Kill one, pause it past its lease, or end it in order; another may take its place."""
        self._clock.sleep(chance.uniform(0.0, 2.0))
        number, process = chance.choice(sorted(self.running.items()))
        self._note(f"{fault.name} to worker {number}")
        if fault is signal.SIGSTOP:
            os.killpg(process.pid, signal.SIGSTOP)
            try:
                self._clock.sleep(LEASE_SECONDS * chance.uniform(1.2, 1.8))
            finally:
                os.killpg(process.pid, signal.SIGCONT)
            return
        process.send_signal(fault)
        status = process.wait(PATIENCE_SECONDS)
        assert status == (0 if fault is signal.SIGTERM else -fault), self.log(number).read_text()
        del self.running[number]
        if replaces:
            self.start()

    def stop(self) -> None:
        """All of them, in order."""
        for process in self.running.values():
            process.terminate()
        for number, process in self.running.items():
            assert process.wait(PATIENCE_SECONDS) == 0, self.log(number).read_text()[-3000:]
        self._note("all stopped")

    def troubles(self) -> Counter[str]:
        """What workers complained about, and how often."""
        found = Counter[str]()
        for number in range(1, self._number + 1):
            # The last line of one that was killed may be cut off.
            for line in self.log(number).read_text().splitlines():
                with suppress(ValueError):
                    entry = json.loads(line)
                    if isinstance(entry, dict) and entry.get("level") in ("warning", "error"):
                        found[f"{entry['level']}: {entry['event']} {entry.get('code', '')}"] += 1
        return found

    def _note(self, event: str) -> None:
        self.events.append(f"{self._clock.monotonic() - self._began:6.1f} s  {event}")
