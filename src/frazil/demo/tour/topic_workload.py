"""The workload of the topics: a producer and the broker in one, at a bounded rate and by a seed."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from frazil.codec.kfs.compression import BatchCompression
from frazil.demo.tour.segment_writer import write_segment
from frazil.demo.tour.topics import CUSTOMERS, ORDERS, Customers, Orders, damaged_order
from frazil.hooks import SystemClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frazil.demo.services import ObjectStore
    from frazil.demo.tour.segment_writer import ProducedRecord
    from frazil.demo.tour.topics import Customer
    from frazil.hooks import Clock

# As brokers do unless someone sets another one.
_NAMESPACE = "default"
_PARTITIONS = {ORDERS: 3, CUSTOMERS: 2}

# What is there before the pipeline starts: segments, and records in each.
_FIRST_SEGMENTS, _FIRST_RECORDS = 15, 800
_FIRST_CUSTOMERS = 2_000
# What comes at a time: a segment of orders, and one of changes for each partition.
_ORDERS_AT_ONCE, _CHANGES_AT_ONCE = 100, 30
_DAMAGED_AT = 5
_STOP_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class TopicCounts:
    """What was produced; ``damaged`` are the records that no row can have."""

    records: int = 0
    segments: int = 0
    damaged: int = 0

    @property
    def brief(self) -> str:
        """The records."""
        return f"{self.records:,} records in the topics"

    @property
    def full(self) -> str:
        """Records and segments."""
        return f"{self.brief}, in {self.segments:,} segments"

    def __add__(self, other: TopicCounts) -> TopicCounts:
        return TopicCounts(
            self.records + other.records,
            self.segments + other.segments,
            self.damaged + other.damaged,
        )


class TopicWorkload:
    """Writes segments into a bucket: some at first, then more in a thread until it is stopped.

    Batches are compressed by each of Kafka's codecs in turn. All changes of a customer go to one
    partition, as a producer with a key does it.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        seed: int = 1,
        turns_per_second: float = 2.0,
        clock: Clock | None = None,
    ) -> None:
        self._store = store
        self._pause = 1.0 / turns_per_second
        self._clock = clock or SystemClock()
        self._orders = Orders(seed)
        self._customers = Customers(seed)
        self._next_offsets: defaultdict[tuple[str, int], int] = defaultdict(int)
        self._turns = 0
        self._newest_key = ""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._failed: Exception | None = None
        self._counts: dict[str, TopicCounts] = dict.fromkeys(_PARTITIONS, TopicCounts())

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, name="topic workload", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def counts(self) -> TopicCounts:
        """What was produced so far; may be called from any thread."""
        return sum(self._counts.values(), TopicCounts())

    def counts_of(self, topic: str) -> TopicCounts:
        """What was produced to one topic."""
        return self._counts[topic]

    @property
    def customers(self) -> dict[int, Customer]:
        """What the mirror has to hold, once this has stopped."""
        return self._customers.rows

    @property
    def newest_key(self) -> str:
        """The key of the segment that was written last, below the bucket."""
        return self._newest_key

    @property
    def is_running(self) -> bool:
        """Whether its thread still works; one that failed does not, and ``stop`` says why."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def has_shown_all(self) -> bool:
        """Whether each codec had its turn, and a record came that is no row."""
        return self._turns > max(len(BatchCompression), _DAMAGED_AT)

    def fill(self) -> None:
        """What is there before anyone reads it."""
        for number in range(_FIRST_SEGMENTS):
            orders = [self._orders.draw(self._now_ms()) for _ in range(_FIRST_RECORDS)]
            self._append(ORDERS, number % _PARTITIONS[ORDERS], orders)
        self._append_by_key([self._customers.read(self._now_ms()) for _ in range(_FIRST_CUSTOMERS)])

    def stop(self) -> None:
        """End between two segments; raises what the workload failed with. May be repeated."""
        self._stop.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(_STOP_SECONDS)
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    def _run(self) -> None:
        try:
            while not self._stop.wait(self._pause):
                self._produce()
        except Exception as error:  # noqa: BLE001 - raised by stop
            self._failed = error

    def _produce(self) -> None:
        orders = [self._orders.draw(self._now_ms()) for _ in range(_ORDERS_AT_ONCE)]
        damaged = [damaged_order(self._now_ms())] if self._turns == _DAMAGED_AT else []
        partition = self._turns % _PARTITIONS[ORDERS]
        self._append(ORDERS, partition, [*orders, *damaged], damaged=len(damaged))
        self._append_by_key(
            [each for _ in range(_CHANGES_AT_ONCE) for each in self._customers.draw(self._now_ms())]
        )
        self._turns += 1

    def _append_by_key(self, records: Sequence[tuple[int, ProducedRecord]]) -> None:
        count = _PARTITIONS[CUSTOMERS]
        for partition in range(count):
            mine = [record for number, record in records if number % count == partition]
            if mine:
                self._append(CUSTOMERS, partition, mine)

    def _append(
        self, topic: str, partition: int, records: Sequence[ProducedRecord], *, damaged: int = 0
    ) -> None:
        base = self._next_offsets[topic, partition]
        made = self._counts[topic].segments
        written = write_segment(base, records, BatchCompression(made % len(BatchCompression)))
        key = f"{_NAMESPACE}/{topic}/{partition}/segment-{base:020d}"
        # In the broker's order: a segment counts when both files are there.
        self._store.put(f"{key}.kfs", written.segment)
        self._store.put(f"{key}.index", written.index)
        self._newest_key = f"{key}.kfs"
        self._next_offsets[topic, partition] = base + len(records)
        self._counts[topic] += TopicCounts(len(records), 1, damaged)

    def _now_ms(self) -> int:
        return int(self._clock.now().timestamp() * 1000)
