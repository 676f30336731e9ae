"""Why a table or a source does not go on, as every page and command shows it; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.errors import FrazilError
from frazil.ledger.table_state import Copying, Gone, Paused, ResyncRequired
from frazil.model.cause import Cause
from frazil.pipeline.status.values import ProblemStatus

if TYPE_CHECKING:
    from datetime import datetime

    from frazil.ledger.table_state import State

DEFECT_REMEDY = "this is a defect in frazil: the stack trace is in the log; report it"


def cause_of_error(error: Exception) -> Cause:
    """Any error as fields; the text of one that is not ours may quote a row and is left out."""
    if isinstance(error, FrazilError):
        return Cause.of(error)
    return Cause(None, f"unexpected {type(error).__name__}", DEFECT_REMEDY)


def problem_of_error(
    error: Exception, *, since: datetime, retry_at: datetime | None = None
) -> ProblemStatus:
    """From what was raised."""
    return problem_of_cause(cause_of_error(error), since=since, retry_at=retry_at)


def problem_of_cause(
    cause: Cause, *, since: datetime, retry_at: datetime | None = None
) -> ProblemStatus:
    """From what the ledger recorded."""
    return ProblemStatus(
        code=cause.code,
        reason=cause.reason,
        remedy=cause.remedy or "",
        since=since,
        retry_at=retry_at,
    )


def problem_of_state(table: str, state: State, *, since: datetime) -> ProblemStatus | None:
    """From the state of a table; None when no action is required."""
    match state:
        case Paused(cause=cause) | Copying(cause=Cause() as cause) | Gone(cause=cause):
            return problem_of_cause(cause, since=since)
        case ResyncRequired():
            return problem_of_error(state.error(table), since=since)
        case _:
            return None
