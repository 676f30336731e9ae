"""What the log says when the state of a table changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.errors import FrazilError, TableNotFoundError
from frazil.ingest.planning.table_decisions import GONE, IS_GONE
from frazil.ledger.table_state import Copying, Paused, ResyncRequired
from frazil.model.command import command
from frazil.telemetry.logs import get_logger

if TYPE_CHECKING:
    from frazil.ledger.table_state import TableState
    from frazil.model.source_table import SourceTable

_log = get_logger(__name__)


def log_state(standing: TableState, found: SourceTable | None = None) -> None:
    """A new state, and the table at the source that led to it."""
    match standing.state:
        case Copying(reason=str()) if found is not None and found.obstacle is not None:
            _log_stopped("table cannot be captured", standing.table, found.obstacle)
        case Paused(reason=reason) if reason == GONE:
            log_paused(standing.table, IS_GONE)
        case ResyncRequired() as state:
            _log_stopped("resync needed", standing.table, state.error(standing.table))
        case state:
            _log.info("table stands", table=standing.table, state=str(state))


def log_paused(table: str, error: FrazilError) -> None:
    """A table that is held, and why."""
    _log_stopped("table held", table, error)


def _log_stopped(event: str, table: str, error: FrazilError) -> None:
    remedy = error.next_step or error.remedy
    _log.error(event, table=table, code=error.code, reason=error.reason, remedy=remedy)


def outlasted(held: Paused) -> str:
    """Why a table that was paused for too long has to be read again."""
    # What was to be done then does not help any more.
    why = held.reason.partition(" Next: ")[0].removesuffix(".")
    return f"it was stopped for longer than source.on_stopped_table allows, by {why}"


def no_changelog(table: str) -> FrazilError:
    """What pauses a table whose changelog says nothing of its position."""
    return TableNotFoundError(
        "its changelog is gone, or was emptied.", table=table, next_step=command("resync", table)
    )
