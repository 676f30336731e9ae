"""The ledger's rows: a batch's work on one table, or how a table stands; pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from frazil.ledger.table_state import (
    Copying,
    Paused,
    ResyncRequired,
    Streaming,
    TableState,
    parse_state,
)
from frazil.model.schema.types import Field, Primitive, Schema

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from frazil.ledger.table_state import State
    from frazil.model.marker import MarkerRole, Position

Row = dict[str, object]


class RowKind(StrEnum):
    """What a row tells."""

    BATCH = "batch"
    STANDING = "standing"


# No column is called like a word of SQL: people type these queries by hand.
SCHEMA = Schema(
    0,
    (
        Field(1, "commit_number", Primitive.LONG, required=True, doc="later commits are higher"),
        Field(2, "kind", Primitive.STRING, required=True, doc="batch, or standing of a table"),
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
        Field(13, "state", Primitive.STRING, doc="copying, live, held, resync needed or left"),
        Field(14, "state_position", Primitive.STRING),
        Field(15, "state_reason", Primitive.STRING),
        Field(16, "source_identity", Primitive.STRING, doc="what the table is at the source"),
    ),
)
STANDING_COLUMNS = ("table_name", "source_identity", "state", "state_position", "state_reason")


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


def plan_rows(
    entries: Sequence[LedgerEntry],
    table_states: Sequence[TableState],
    *,
    commit_number: int,
    batch: str,
    now: datetime,
) -> list[Row]:
    """The rows of one commit; ``batch`` and ``now`` are those of the standings."""
    tables = [each.table for each in table_states]
    if len(set(tables)) < len(tables):
        raise ValueError("a table has two standings in one commit")
    shared: Row = {"commit_number": commit_number}
    return [
        *({**shared, **_entry_row(each)} for each in entries),
        *(
            {**shared, "batch": batch, "committed_at": now, **_standing_row(each)}
            for each in table_states
        ),
    ]


def state_from(
    table: str, identity: str, word: str, position: str | None, reason: str | None
) -> TableState:
    """A standing from the columns of ``STANDING_COLUMNS``."""
    return TableState(table=table, identity=identity, state=parse_state(word, position, reason))


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


def _standing_row(standing: TableState) -> Row:
    position, reason = _details(standing.state)
    return {
        "kind": RowKind.STANDING.value,
        "table_name": standing.table,
        "source_identity": standing.identity,
        "state": standing.state.word,
        "state_position": position,
        "state_reason": reason,
    }


def _details(state: State) -> tuple[str | None, str | None]:
    match state:
        case Streaming():
            return None, None
        case Copying(reason):
            return None, reason
        case Paused(position, reason) | ResyncRequired(position, reason):
            return position, reason
        case _:
            return state.position, None
