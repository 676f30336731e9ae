"""What keeps a table or a source from going on, in the words that every place shows; pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from frazil.errors import FrazilError, leaves
from frazil.ledger.table_state import Copying, Paused, ResyncRequired
from frazil.pipeline.status.values import ProblemStatus

if TYPE_CHECKING:
    from datetime import datetime

    from frazil.ledger.table_state import State

_LEAVES = {leaf.code: leaf for leaf in leaves()}
# As ``FrazilError.told`` writes it.
_TOLD = re.compile(
    r"(?:(?P<code>FRZ-[A-Z]+-\d+) )?(?P<reason>.*?)(?: Next: (?P<next>.*))?", re.DOTALL
)
DEFECT_REMEDY = "this is a defect in frazil: the trace is in the log; report it"


def trouble_of_error(
    error: Exception, *, since: datetime, retry_at: datetime | None = None
) -> ProblemStatus:
    """From what was raised; a stranger's text may quote a row and is not shown."""
    if isinstance(error, FrazilError):
        return trouble_of_text(error.told, since=since, retry_at=retry_at)
    return ProblemStatus(
        code=None,
        reason=f"unexpected {type(error).__name__}",
        remedy=DEFECT_REMEDY,
        since=since,
        retry_at=retry_at,
    )


def trouble_of_text(
    told: str, *, since: datetime, retry_at: datetime | None = None
) -> ProblemStatus:
    """From what the ledger keeps."""
    found = _TOLD.fullmatch(told)
    code, reason, remedy = (None, told, None) if found is None else found.groups()
    leaf = None if code is None else _LEAVES.get(code)
    meant = "" if leaf is None else leaf.remedy
    return ProblemStatus(
        code=code, reason=reason, remedy=remedy or meant, since=since, retry_at=retry_at
    )


def trouble_of_state(table: str, state: State, *, since: datetime) -> ProblemStatus | None:
    """From how a table stands in the ledger; None when nobody has to act."""
    match state:
        case Paused(reason=reason) | Copying(reason=str() as reason):
            return trouble_of_text(reason, since=since)
        case ResyncRequired():
            return trouble_of_error(state.error(table), since=since)
        case _:
            return None
