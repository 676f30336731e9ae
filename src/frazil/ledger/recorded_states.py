"""States of tables as the ledger's columns hold them, and as earlier releases wrote them; pure."""

from __future__ import annotations

import re
from dataclasses import replace

from frazil.errors import ForeignChangeError, leaves
from frazil.ledger.table_state import (
    IS_GONE,
    Copying,
    Gone,
    Paused,
    Removed,
    ResyncRequired,
    State,
    Streaming,
)
from frazil.model.cause import Cause
from frazil.model.recorded_version import NEWER_STEP

# What the first releases called these states.
_EARLIER = {
    "live": Streaming.word,
    "held": Paused.word,
    "resync needed": ResyncRequired.word,
    "left": Removed.word,
}
# They wrote a cause as one text: the code, the reason and the next step.
_ONE_TEXT = re.compile(
    r"(?:(?P<code>FRZ-[A-Z]+-\d+) )?(?P<reason>.*?)(?: Next: (?P<remedy>.*))?", re.DOTALL
)
_REMEDIES = {leaf.code: leaf.remedy for leaf in leaves()}


def state_columns(state: State) -> dict[str, str | None]:
    """The columns of a state; those that do not belong to it are null."""
    columns: dict[str, str | None] = {"state": state.word}
    match state:
        case Copying(Cause() as cause):
            return columns | _cause_columns(cause)
        case Paused(position, cause):
            return columns | {"state_position": position} | _cause_columns(cause)
        case ResyncRequired(position, reason):
            return columns | {"state_position": position, "state_reason": reason}
        case Gone(position):
            return columns | {"state_position": position} | _cause_columns(state.cause)
        case Removed(position):
            return columns | {"state_position": position}
        case _:
            return columns


def parse_state(
    word: str,
    *,
    position: str | None,
    reason: str | None,
    code: str | None = None,
    remedy: str | None = None,
) -> State:
    """A state from its columns; raises ForeignChangeError for one that is not known."""
    match _EARLIER.get(word, word), position, reason:
        case Copying.word, None, _:
            return Copying(None if reason is None else _cause(code, reason, remedy))
        case Streaming.word, None, None:
            return Streaming()
        case Paused.word, str(), str():
            cause = _cause(code, reason, remedy)
            return Gone(position) if cause.reason == IS_GONE.reason else Paused(position, cause)
        case Gone.word, str(), _:
            return Gone(position)
        case ResyncRequired.word, str(), str():
            return ResyncRequired(position, reason)
        case Removed.word, str(), None:
            return Removed(position)
        case _:
            message = "the ledger holds a state that this frazil does not know."
            raise ForeignChangeError(message, next_step=NEWER_STEP)


def _cause(code: str | None, reason: str, remedy: str | None) -> Cause:
    earlier = _ONE_TEXT.fullmatch(reason) if code is None else None
    if earlier is None:
        return Cause(code, reason, remedy)
    found = Cause(**earlier.groupdict())
    return replace(found, remedy=found.remedy or _REMEDIES.get(found.code or ""))


def _cause_columns(cause: Cause) -> dict[str, str | None]:
    return {
        "state_reason": cause.reason,
        "state_code": cause.code,
        "state_remedy": cause.remedy,
    }
