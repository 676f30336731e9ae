"""The mergers of one catalog, made when they are first wanted."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from frazil.clients.iceberg.lake import Lake
from frazil.maintain.compaction.landing_queue import LandingQueue
from frazil.merge.merger import Merger
from frazil.pipeline.recording.recorders import TracedMerge
from frazil.pipeline.tables.captured_mirrors import load_captured_mirror
from frazil.pipeline.tables.captured_names import CapturedNames, captured_names
from frazil.pipeline.tables.merge_settings import merge_settings, retry_policy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from frazil.clients.spark.session import Session
    from frazil.config import Config
    from frazil.merge.report import MergeReport
    from frazil.pipeline.loops.merge_loop import TableMerge
    from frazil.pipeline.tables.captured_mirrors import CapturedMirror
    from frazil.telemetry.tracing import Tracing


class Mergers:
    """For any thread."""

    def __init__(self, session: Session, config: Config, tracing: Tracing) -> None:
        self._session = session
        self._config = config
        self._tracing = tracing
        self._sources: dict[str, str] = {}
        self._making = threading.Lock()
        self._lake: Lake | None = None
        self._made: dict[str, Merger] = {}
        self._queues: dict[str, LandingQueue] = {}

    def learn(self, captured: Mapping[str, CapturedMirror]) -> None:
        """Mirrors that are filled from these tables of the source."""
        with self._making:
            self._sources |= {mirror: each.source for mirror, each in captured.items()}

    def merge_of(self, mirror: str) -> TableMerge:
        """What the loop runs for this mirror; the catalog is not queried yet."""
        return TracedMerge(mirror, _Merge(self, mirror), self._tracing)

    def merger_of(self, mirror: str) -> Merger:
        """The same one every time, unless what it must know has changed."""
        with self._making:
            if self._lake is None:
                self._lake = Lake(self._session, self._config.catalog.name)
            settings = merge_settings(
                self._config, mirror, captured=self._captured_now(self._lake, mirror)
            )
            made = self._made.get(mirror)
            if made is None or made.settings != settings:
                retry = retry_policy(self._config)
                made = Merger(
                    self._session,
                    self._lake,
                    settings,
                    retry=retry,
                    between=self._queue_of(mirror).land_next,
                )
                self._made[mirror] = made
            return made

    def queue_of(self, mirror: str) -> LandingQueue:
        """Where finished rewrites of the mirror wait for its merges."""
        with self._making:
            return self._queue_of(mirror)

    def _queue_of(self, mirror: str) -> LandingQueue:
        return self._queues.setdefault(mirror, LandingQueue(mirror))

    def _captured_now(self, lake: Lake, mirror: str) -> CapturedMirror | None:
        """A key column may have been renamed at the source since the last merge."""
        source = self._sources.get(mirror)
        if source is None:
            return None
        names = captured_names(self._config, [source])[source]
        if not isinstance(names, CapturedNames):
            return None
        return load_captured_mirror(lake, source, names)


class _Merge:
    def __init__(self, mergers: Mergers, mirror: str) -> None:
        self._mergers = mergers
        self._mirror = mirror

    def merge(self, *, stop: Callable[[], bool]) -> MergeReport:
        return self._mergers.merger_of(self._mirror).merge(stop=stop)
