"""The ledger's rows: a batch's work on one table, or the state of a table, also of old releases."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

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
    TableState,
)
from frazil.model.cause import Cause
from frazil.model.recorded_version import NEWER_STEP
from frazil.model.schema.types import Field, Primitive, Schema

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from frazil.model.marker import MarkerRole, Position

Row = dict[str, object]
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

# Partitions that a line of a log or a state of a table names one by one.
_MOST_SHOWN = 16


class RowKind(StrEnum):
    """What a row is about."""

    BATCH = "batch"
    # As the first releases called it: an older process must not take states for something else.
    STATE = "standing"


# No column is called like a word of SQL: people type these queries by hand.
SCHEMA = Schema(
    0,
    (
        Field(1, "commit_number", Primitive.LONG, required=True, doc="later commits are higher"),
        Field(2, "kind", Primitive.STRING, required=True, doc="batch, or state of a table"),
        Field(3, "table_name", Primitive.STRING, required=True),
        Field(4, "batch", Primitive.STRING, required=True),
        Field(5, "committed_at", Primitive.TIMESTAMPTZ, required=True),
        Field(6, "role", Primitive.STRING, doc="ingest or merge"),
        Field(7, "from_position", Primitive.STRING),
        Field(8, "to_position", Primitive.STRING),
        Field(9, "row_count", Primitive.LONG),
        Field(10, "file_count", Primitive.LONG),
        Field(11, "seconds", Primitive.DOUBLE),
        Field(12, "note", Primitive.STRING),
        Field(
            13,
            "state",
            Primitive.STRING,
            doc="copying, streaming, paused, gone, resync required or removed",
        ),
        Field(14, "state_position", Primitive.STRING),
        Field(15, "state_reason", Primitive.STRING),
        Field(16, "source_identity", Primitive.STRING, doc="what the table is at the source"),
        Field(17, "state_code", Primitive.STRING, doc="the code of the error that stopped it"),
        Field(18, "state_remedy", Primitive.STRING),
    ),
)
STATE_COLUMNS = (
    "table_name",
    "source_identity",
    "state",
    "state_position",
    "state_reason",
    "state_code",
    "state_remedy",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """What one batch did to one table."""

    batch: str
    role: MarkerRole
    table: str
    start: Position | None
    goal: Position
    rows: int
    files: int
    seconds: float
    committed_at: datetime
    note: str | None = None


def position_text(position: Position) -> str:
    """A position as people read it; offsets become one line of JSON."""
    if isinstance(position, Mapping):
        return json.dumps(dict(position), ensure_ascii=False, separators=(",", ":"))
    return position


def brief_position(position: Position | None) -> str:
    """The same where a line has to do; of many partitions, how many they are."""
    if position is None:
        return ""
    if isinstance(position, Mapping) and len(position) > _MOST_SHOWN:
        return f"{len(position)} partitions"
    return position_text(position)


def plan_rows(
    entries: Sequence[LedgerEntry],
    table_states: Sequence[TableState],
    *,
    commit_number: int,
    batch: str,
    now: datetime,
) -> list[Row]:
    """The rows of one commit; ``batch`` and ``now`` are those of the states."""
    tables = [each.table for each in table_states]
    if len(set(tables)) < len(tables):
        raise ValueError("a table has two states in one commit")
    shared: Row = {"commit_number": commit_number}
    return [
        *({**shared, **_entry_row(each)} for each in entries),
        *(
            {**shared, "batch": batch, "committed_at": now, **_state_row(each)}
            for each in table_states
        ),
    ]


def state_from(row: Mapping[str, str | None]) -> TableState:
    """A state from the columns of ``STATE_COLUMNS``."""
    return TableState(
        table=row["table_name"] or "",
        identity=row["source_identity"] or "",
        state=parse_state(
            row["state"] or "",
            position=row["state_position"],
            reason=row["state_reason"],
            code=row["state_code"],
            remedy=row["state_remedy"],
        ),
    )


def _entry_row(entry: LedgerEntry) -> Row:
    return {
        "kind": RowKind.BATCH.value,
        "table_name": entry.table,
        "batch": entry.batch,
        "committed_at": entry.committed_at,
        "role": entry.role.value,
        "from_position": None if entry.start is None else position_text(entry.start),
        "to_position": position_text(entry.goal),
        "row_count": entry.rows,
        "file_count": entry.files,
        "seconds": entry.seconds,
        "note": entry.note,
    }


def _state_row(state: TableState) -> Row:
    return {
        "kind": RowKind.STATE.value,
        "table_name": state.table,
        "source_identity": state.identity,
        **state_columns(state.state),
    }


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
