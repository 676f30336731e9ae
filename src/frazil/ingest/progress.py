"""The progress of a copy: reported by tasks as they end, read by any thread."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark import Accumulator, SparkContext

    from frazil.hooks import Clock

_log = get_logger(__name__)

# Often enough for an operator who waits, seldom enough for a log that is kept.
LOG_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyProgress:
    """Rows and bytes read so far, of about so many bytes; bytes are those at the source."""

    tables: tuple[str, ...]
    rows: int
    bytes_read: int
    bytes_total: int
    seconds: float

    @property
    def fraction(self) -> float:
        """Between 0 and 1."""
        return min(1.0, self.bytes_read / self.bytes_total) if self.bytes_total else 0.0

    @property
    def remaining_seconds(self) -> float | None:
        """The estimate at the same speed; None while there is none."""
        if not self.fraction:
            return None
        return self.seconds * (1 - self.fraction) / self.fraction


class TaskGauge:
    """Counts in tasks; Spark brings the counts to the driver when a task ends. Made to travel."""

    def __init__(self, context: SparkContext) -> None:
        self._rows: Accumulator[int] = context.accumulator(0)
        self._bytes: Accumulator[int] = context.accumulator(0)

    def add(self, *, rows: int, size: int) -> None:
        """A split was read."""
        self._rows.add(rows)
        self._bytes.add(size)

    @property
    def rows(self) -> int:
        """Of all tasks that have ended; on the driver."""
        return self._rows.value

    @property
    def bytes(self) -> int:
        """Of all tasks that have ended; on the driver."""
        return self._bytes.value


class ReadingProgress:
    """The progress of one batch; lives on the driver."""

    def __init__(
        self, context: SparkContext, tables: tuple[str, ...], *, size: int, clock: Clock
    ) -> None:
        self.gauge = TaskGauge(context)
        self._tables = tables
        self._size = size
        self._clock = clock
        self._began = clock.monotonic()

    def now(self) -> CopyProgress:
        """How far it is."""
        return CopyProgress(
            tables=self._tables,
            rows=self.gauge.rows,
            bytes_read=self.gauge.bytes,
            bytes_total=self._size,
            seconds=self._clock.monotonic() - self._began,
        )

    @contextmanager
    def logged(self) -> Iterator[None]:
        """Log the progress periodically until the block ends."""
        ended = threading.Event()
        logger = threading.Thread(
            target=self._log_until, args=(ended,), name="frazil progress", daemon=True
        )
        logger.start()
        try:
            yield
        finally:
            ended.set()
            logger.join()

    def _log_until(self, ended: threading.Event) -> None:
        while not ended.wait(LOG_SECONDS):
            now = self.now()
            left = now.remaining_seconds
            _log.info(
                "copying tables",
                tables=len(now.tables),
                rows=now.rows,
                bytes=now.bytes_read,
                percent=round(100 * now.fraction, 1),
                remaining=None if left is None else round(left),
            )
