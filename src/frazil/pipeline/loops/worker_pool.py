"""A few threads that merge tables."""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.clients.defects import as_ours

if TYPE_CHECKING:
    from collections.abc import Callable

    from frazil.hooks import Clock
    from frazil.merge.report import MergeReport


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of one table: when it began on the monotonic clock, how long, and how it ended."""

    table: str
    began: float
    seconds: float
    outcome: MergeReport | Exception


class WorkerPool:
    """Threads that live as long as the loop, because each holds a connection to the JVM.

    They are daemons: a merge that hangs must not keep the process from ending. ``on_end`` is
    called in the thread that has merged.
    """

    def __init__(
        self,
        size: int,
        merge: Callable[[str], MergeReport],
        clock: Clock,
        *,
        on_end: Callable[[Attempt], None],
    ) -> None:
        self._merge = merge
        self._clock = clock
        self._on_end = on_end
        self._size = size
        self._todo: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        for number in range(size):
            name = f"frazil merger {number + 1}"
            threading.Thread(target=self._work, name=name, daemon=True).start()

    def start(self, table: str) -> None:
        """Merge this table as soon as a thread is free."""
        self._todo.put(table)

    def dismiss(self) -> None:
        """End every thread after its current merge."""
        for _ in range(self._size):
            self._todo.put(None)

    def _work(self) -> None:
        while (table := self._todo.get()) is not None:
            began = self._clock.monotonic()
            outcome: MergeReport | Exception
            try:
                outcome = self._merge(table)
            except Exception as error:  # noqa: BLE001 - whatever one table fails with, the others go on
                outcome = as_ours(error, table=table, doing="merging")
            seconds = self._clock.monotonic() - began
            self._on_end(Attempt(table, began, seconds, outcome))
