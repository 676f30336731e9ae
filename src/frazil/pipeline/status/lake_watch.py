"""What the lake holds, for a running process: totals, and commits from before it started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.clients.iceberg.lake import Lake
from frazil.ledger.table import Ledger
from frazil.model.table_name import parse_table_name
from frazil.pipeline.status.lake_facts import load_lake_facts
from frazil.pipeline.tables.captured_mirrors import ledger_name

if TYPE_CHECKING:
    from frazil.clients.spark.session import Session
    from frazil.config import Config
    from frazil.pipeline.status.board import StatusBoard


class LakeWatch:
    """Loads what a board wants to know of the lake, in one thread."""

    def __init__(self, session: Session, config: Config, board: StatusBoard) -> None:
        self._session = session
        self._config = config
        self._board = board
        self._lake: Lake | None = None
        self._has_dates = config.source is None

    def load(self) -> None:
        """Load the tables that are new or have a newer commit; what fails is loaded again."""
        try:
            if self._lake is None:
                self._lake = Lake(self._session, self._config.catalog.name)
            self._answer(self._lake)
            self._load_dates(self._lake)
        except Exception:  # noqa: BLE001 - at the end of a process Spark may be gone under it
            # The loops meet the same, and say so.
            return

    def _answer(self, lake: Lake) -> None:
        for question in self._board.open_questions():
            name = parse_table_name(question.lake_table, catalog=self._config.catalog.name)
            facts = load_lake_facts(lake, name, question.role, question.table)
            self._board.record_lake(question, facts)

    def _load_dates(self, lake: Lake) -> None:
        """Once, and only when a table is stopped: it may have been so before this process."""
        if self._has_dates or not self._board.now().stopped:
            return
        dated = Ledger.open(lake, ledger_name(self._config)).dated_states()
        self._board.record_state_since({each.state.table: each.since for each in dated})
        self._has_dates = True
