"""Compactions of one mirror, one after the other, in a thread beside its merges."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from frazil.maintain.compaction.landing import Abandoned, Landed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.maintain.compaction.running import TableCompaction

_LONGEST_SECONDS = 60.0


@dataclass(slots=True)
class BusyCompaction:
    """What came of them; ``merged`` is counted by the thread that merges."""

    compaction: TableCompaction
    stop: threading.Event = field(default_factory=threading.Event)
    merged: int = 0
    landed: int = 0
    merges_meanwhile: int = 0
    abandoned: list[str] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    _thread: threading.Thread | None = None

    @contextmanager
    def running(self) -> Iterator[BusyCompaction]:
        """Compact all files of the mirror, again and again, until it is stopped."""
        self._thread = threading.Thread(target=self._run, name="compaction", daemon=True)
        self._thread.start()
        try:
            yield self
        finally:
            self.stop.set()
            self._thread.join(_LONGEST_SECONDS)

    @property
    def is_running(self) -> bool:
        """Whether one is being written, or waits to land."""
        return self._thread is not None and self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self.stop.is_set():
                self._compact()
        except Exception as error:  # noqa: BLE001 - whoever began it looks at them
            self.errors.append(error)

    def _compact(self) -> None:
        table = self.compaction.lake.open(self.compaction.table)
        head = table.load_state().head
        files = [] if head is None else [each.location for each in table.load_live_files(head.id)]
        before = self.merged
        landing = self.compaction.compact(files).landing
        self.merges_meanwhile += self.merged - before
        if isinstance(landing, Landed):
            self.landed += 1
        elif isinstance(landing, Abandoned):
            self.abandoned.append(landing.reason)
        self.compaction.merge_runs()
