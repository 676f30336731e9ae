"""What is said when the state of a captured table changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil import errors
from frazil.ingest.decisions import GONE, IS_GONE
from frazil.ledger.standing import Held, ResyncNeeded
from frazil.telemetry.logs import get_logger

if TYPE_CHECKING:
    from frazil.ledger.standing import TableStanding

_log = get_logger(__name__)


def tell(standing: TableStanding) -> None:
    """Log how a table stands from now on."""
    match standing.state:
        case Held(reason=reason) if reason == GONE:
            tell_held(standing.table, IS_GONE)
        case ResyncNeeded() as state:
            _tell_stopped("resync needed", standing.table, state.error(standing.table))
        case state:
            _log.info("table stands", table=standing.table, state=str(state))


def tell_held(table: str, error: errors.FrazilError) -> None:
    """Log that a table is paused, and why."""
    _tell_stopped("table held", table, error)


def _tell_stopped(event: str, table: str, error: errors.FrazilError) -> None:
    remedy = error.next_step or error.remedy
    _log.error(event, table=table, code=error.code, reason=error.reason, remedy=remedy)


def outlasted(held: Held) -> str:
    """Why a table that was paused for too long has to be read again."""
    # What was to be done then does not help any more.
    why = held.reason.partition(" Next: ")[0].removesuffix(".")
    return f"it was stopped for longer than source.on_stopped_table allows, by {why}"


def no_changelog(table: str) -> errors.FrazilError:
    """What pauses a table whose changelog says nothing of its position."""
    return errors.TableNotFoundError(
        "its changelog is gone, or was emptied.", table=table, next_step=f"frazil resync {table}"
    )
