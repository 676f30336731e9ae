"""What the ledger writes down, and reads back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, get_args

import pytest

from frazil.errors import ForeignChangeError
from frazil.ledger.rows import (
    SCHEMA,
    STATE_COLUMNS,
    LedgerEntry,
    brief_position,
    parse_state,
    plan_rows,
    position_text,
    state_from,
)
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
from frazil.model.marker import MarkerRole
from frazil.model.records.rejected_record import RejectedRecord, RejectReason

if TYPE_CHECKING:
    from frazil.ledger.rows import Row

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
STATES = [
    Copying(),
    Streaming(),
    Copying(Cause("FRZ-LAK-02", "users: no room.", "free some")),
    Paused("0/A", Cause("FRZ-SCH-01", "type changed")),
    Gone("0/A"),
    ResyncRequired("0/B", "its row filter changed"),
    Removed("0/C"),
]


def rows_of(*table_states: TableState, entries: tuple[LedgerEntry, ...] = ()) -> list[Row]:
    return plan_rows(entries, table_states, commit_number=7, batch="b9", now=NOW)


def test_every_state_is_tried_here() -> None:
    assert {type(state) for state in STATES} == set(get_args(State))


@pytest.mark.parametrize("state", STATES, ids=str)
def test_a_state_survives_its_row(state: State) -> None:
    recorded = TableState(table="public.users_changelog", identity="16384", state=state)
    (row,) = rows_of(recorded)
    assert (row["kind"], row["commit_number"], row["batch"]) == ("standing", 7, "b9")
    assert state_from({name: row.get(name) for name in STATE_COLUMNS}) == recorded  # type: ignore[misc]


def test_states_read_as_people_say_them() -> None:
    assert [str(state) for state in STATES] == [
        "copying",
        "streaming",
        "copying failed: FRZ-LAK-02 users: no room. Next: free some",
        "paused at 0/A: FRZ-SCH-01 type changed",
        f"paused at 0/A: FRZ-SCH-01 {IS_GONE.reason} Next: {IS_GONE.next_step}",
        "resync required since 0/B: its row filter changed",
        "removed at 0/C",
    ]


@pytest.mark.parametrize(
    ("word", "position", "reason"),
    [
        ("paused", None, None),
        ("held", None, None),
        ("asleep", None, None),
        ("live", "0/A", None),
        ("left", "0/A", "why"),
    ],
)
def test_a_state_that_is_not_ours_is_not_guessed(
    word: str, position: str | None, reason: str | None
) -> None:
    with pytest.raises(ForeignChangeError, match="does not know"):
        parse_state(word, position=position, reason=reason)


def test_an_entry_says_what_a_batch_did() -> None:
    entry = LedgerEntry(
        batch="b9",
        role=MarkerRole.INGEST,
        table="public.users_changelog",
        start=None,
        goal={"default/orders/x/1": 9, "default/orders/x/0": 4},
        rows=5,
        files=1,
        seconds=0.5,
        committed_at=NOW,
    )
    (row,) = rows_of(entries=(entry,))
    assert row["kind"] == "batch"
    assert row["from_position"] is None
    assert row["to_position"] == '{"default/orders/x/1":9,"default/orders/x/0":4}'
    assert set(row) <= {field.name for field in SCHEMA.fields}


def test_one_commit_says_one_thing_about_a_table() -> None:
    state = TableState(table="a.b", identity="1", state=Streaming())
    with pytest.raises(ValueError, match="two states"):
        rows_of(state, state)


def test_a_position_is_shown_as_it_is() -> None:
    assert position_text("0/1A2B") == "0/1A2B"


def test_a_rejected_record_does_not_show_its_payload() -> None:
    record = RejectedRecord(
        table="a.x",
        offset=10,
        reason=RejectReason.MALFORMED,
        message="does not decode",
        payload=b"canary-of-a-row",
    )
    assert "canary" not in repr(record)


def test_many_partitions_are_counted_where_a_line_has_to_do() -> None:
    few, many = {"t/0": 5}, {f"t/{number}": 5 for number in range(100)}
    assert brief_position(None) == ""
    assert brief_position("0/1") == "0/1"
    assert brief_position(few) == position_text(few)
    assert brief_position(many) == "100 partitions"
