"""The states of tables after a batch, and log events about states."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from frazil.errors import FrazilError, TableNotFoundError
from frazil.ledger.table_state import (
    Copying,
    Gone,
    Paused,
    ResyncRequired,
    Streaming,
    TableState,
)
from frazil.model.cause import Cause
from frazil.model.command import command
from frazil.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from frazil.ingest.batch_run import BatchResult

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


def states_after(
    result: BatchResult,
    table_states: Mapping[str, TableState],
    checked: Mapping[str, TableState],
    *,
    position: str,
) -> dict[str, TableState]:
    """The states that a batch of changes changes, together with those that were ``checked``.

    ``position`` is what the source was acknowledged to.
    """
    streaming = {
        name: each for name, each in table_states.items() if isinstance(each.state, Streaming)
    }
    # One that began live with this batch has an identity from now on.
    changed = {
        name: replace(each, identity=result.prepared[name].part.table.identity)
        for name, each in streaming.items()
        if name in result.committed and not each.identity
    } | dict(checked)
    for name, error in result.failures.items():
        cause = Cause.of(error)
        log_paused(name, cause)
        if name in streaming:
            changed[name] = replace(streaming[name], state=Paused(position, cause))
    for name in result.reread:
        _log.info("table is read again, because a type was widened", table=name)
        if name in streaming:
            changed[name] = replace(streaming[name], state=Copying())
    return changed


def states_after_copy(
    result: BatchResult,
    table_states: Mapping[str, TableState],
    may_pass: Callable[[str, FrazilError], bool],
) -> list[TableState]:
    """The states that a copy changes; what may pass leaves a table to be copied."""
    copied = [
        TableState(table=name, identity=prepared.part.table.identity, state=Streaming())
        for name, prepared in result.prepared.items()
        if name in result.committed
    ]
    failed = [
        replace(table_states[name], state=Copying(Cause.of(error)))
        for name, error in result.failures.items()
        if name in table_states and not may_pass(name, error)
    ]
    return copied + failed
