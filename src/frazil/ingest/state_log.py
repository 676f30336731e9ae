"""Log events about the states of tables."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from frazil.errors import FrazilError, TableNotFoundError
from frazil.ledger.table_state import Copying, Gone, Paused, ResyncRequired
from frazil.model.cause import Cause
from frazil.model.command import command
from frazil.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from frazil.ledger.table_state import TableState

_log = get_logger(__name__)


def log_state(table_state: TableState) -> None:
    """A new state."""
    table = table_state.table
    match table_state.state:
        case Copying(Cause() as cause):
            _log_cause("table cannot be captured", table, cause)
        case Gone() as state:
            log_paused(table, state.cause)
        case ResyncRequired() as state:
            _log_cause("resync required", table, Cause.of(state.error(table)))
        case state:
            _log.info("table state changed", table=table, state=str(state))


def log_paused(table: str, cause: Cause) -> None:
    """A table that is paused, and why."""
    _log_cause("table paused", table, cause)


def _log_cause(event: str, table: str, cause: Cause) -> None:
    _log.error(event, table=table, code=cause.code, reason=cause.reason, remedy=cause.remedy)


def require_resync(table_states: Mapping[str, TableState], position: str) -> dict[str, TableState]:
    """The tables that were paused for too long: a resync is required from here on."""
    required = {
        name: replace(each, state=ResyncRequired(position, _paused_too_long(each.state)))
        for name, each in table_states.items()
        if isinstance(each.state, Paused | Gone)
    }
    for each in required.values():
        log_state(each)
    return required


def _paused_too_long(state: Paused | Gone) -> str:
    # What was to be done then does not help any more.
    return (
        "it was paused for longer than source.on_stopped_table allows, by "
        f"{str(state.cause).removesuffix('.')}"
    )


def no_changelog(table: str) -> FrazilError:
    """What pauses a table whose changelog does not say its position."""
    return TableNotFoundError(
        "its changelog is gone, or was emptied.", table=table, next_step=command("resync", table)
    )
