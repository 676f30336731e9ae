"""Requests merges of what was captured: batches that are recorded, and tables that are new."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from frazil.errors import FrazilError
from frazil.pipeline.tables.captured_mirrors import load_captured_mirror, load_captured_mirrors
from frazil.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from frazil.clients.iceberg.lake import Lake
    from frazil.config import Config
    from frazil.ingest.report import BatchReport
    from frazil.pipeline.loops.merge_loop import MergeLoop
    from frazil.pipeline.mergers import Mergers
    from frazil.pipeline.status.board import StatusBoard
    from frazil.pipeline.status.merge_status import MergeStatus
    from frazil.pipeline.tables.captured_mirrors import CapturedMirror
    from frazil.pipeline.tables.captured_names import CapturedNames

_log = get_logger(__name__)


class MergeRequests:
    """Knows the mirrors of the loop; called by the ingest, or by a thread that reads the ledger."""

    def __init__(
        self,
        loop: MergeLoop,
        mergers: Mergers,
        board: StatusBoard,
        *,
        known: Iterable[str],
    ) -> None:
        self._loop = loop
        self._mergers = mergers
        self._board = board
        self._known = set(known)
        # Captured, and not loaded yet: the catalog may have been away.
        self._unsettled: dict[str, CapturedNames] = {}
        self._taking = threading.Lock()
        self._turn = 0

    @property
    def statuses(self) -> tuple[MergeStatus, ...]:
        """The state of every mirror of the loop."""
        return self._loop.statuses

    def take(
        self, report: BatchReport, names: Callable[[str], CapturedNames | None], lake: Lake
    ) -> None:
        """Merge what this batch has brought."""
        with self._taking:
            for each in report.tables:
                named = names(each.table)
                if named is None or named.mirror is None:
                    continue
                if str(named.mirror) in self._known:
                    self._loop.request([str(named.mirror)], was_mended=report.is_copy)
                else:
                    self._unsettled[each.table] = named
            self._settle(lake)

    def take_over(self, turn: int, lake: Lake, config: Config) -> None:
        """Merge what another process has captured before this turn of ours; once a turn."""
        if turn != self._turn and self.refresh(lake, config):
            self._turn = turn

    def refresh(self, lake: Lake, config: Config) -> bool:
        """Merge what another process has captured since, by the ledger, which may not answer."""
        try:
            found = load_captured_mirrors(lake, config)
        except FrazilError as error:
            _log.warning("the ledger does not answer", code=error.code, message=str(error))
            return False
        with self._taking:
            self._join(found)
        return True

    def _settle(self, lake: Lake) -> None:
        for source, named in tuple(self._unsettled.items()):
            try:
                captured = load_captured_mirror(lake, source, named)
            except FrazilError as error:
                _log.warning(
                    "a new table is loaded again with the next batch",
                    table=source,
                    code=error.code,
                    message=str(error),
                )
                continue
            del self._unsettled[source]
            if captured is None:
                # Without a key there is no mirror: its changelog is all that readers get.
                self._board.dismiss(str(named.mirror))
            else:
                self._join({str(named.mirror): captured})

    def _join(self, found: Mapping[str, CapturedMirror]) -> None:
        new = {mirror: each for mirror, each in found.items() if mirror not in self._known}
        self._mergers.learn(new)
        self._board.expect(new)
        for mirror in new:
            self._known.add(mirror)
            self._loop.join(mirror, self._mergers.merge_of(mirror))
