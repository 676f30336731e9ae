"""However a history of changes is written to a topic, its rows fold to what the table was."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from frazil.config.models.kafscale_source import Envelope
from frazil.merge.folding.fold import Change, ChangeAction, KeyAction, fold
from frazil.sources.kafscale.changes.change_events import ChangeEvents
from tests.support.kafscale.change_topics import change_plan, change_records
from tests.support.sampling import examples

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Row: TypeAlias = dict[str, Any]
SMALL, GROWN = "id long, name string", "id long, name string, extra double"


class Form(Enum):
    ENVELOPE = "envelope"
    FLATTENED = "flattened"
    PLAIN = "plain"


class Verb(Enum):
    UPSERT = "upsert"
    DELETE = "delete"
    MOVE = "move"


@dataclass(frozen=True)
class Step:
    verb: Verb
    key: int
    other: int
    name: str | None


STEPS = st.lists(
    st.builds(
        Step, st.sampled_from(Verb), st.integers(1, 4), st.integers(1, 4),
        st.none() | st.text("ab\N{SNOWMAN}", max_size=2),
    ),
    max_size=12,
)  # fmt: skip


class History:
    """Replays steps on a dictionary, and writes each as records."""

    def __init__(self, form: Form, *, has_field: bool) -> None:
        self.form, self.has_field = form, has_field
        self.table: dict[int, Row] = {}
        self.records: list[tuple[Any, Any]] = []
        self._number = 0

    def apply(self, step: Step, *, is_grown: bool) -> None:
        row: Row = {"id": step.key, "name": step.name}
        if is_grown:
            row["extra"] = step.other / 2
        if step.verb is Verb.UPSERT:
            self._upsert(row)
        elif step.key not in self.table:
            return
        elif step.verb is Verb.DELETE:
            self._delete(step.key)
        elif step.other not in self.table:
            self._move(step.key, {**self.table[step.key], "id": step.other})

    def _upsert(self, row: Row) -> None:
        before = self.table.get(row["id"])
        self.table[row["id"]] = row
        self._write("u" if before else "c", row["id"], row, before)

    def _delete(self, key: int) -> None:
        if self.form is Form.PLAIN and self.has_field:
            # A tombstone has no field.
            return
        before = self.table.pop(key)
        self._write("d", key, None, before)
        if self.form is not Form.PLAIN:
            self.records.append(({"id": key}, None))

    def _move(self, key: int, row: Row) -> None:
        if self.form is not Form.ENVELOPE:
            return
        before = self.table.pop(key)
        self.table[row["id"]] = row
        self._write("u", row["id"], row, before)

    def _write(self, op: str, key: int, row: Row | None, before: Row | None) -> None:
        self._number += 1
        value: Row | None
        if self.form is Form.ENVELOPE:
            source = {"lsn": f"0/{self._number:X}"}
            value = {"op": op, "before": before, "after": row, "source": source}
        elif self.form is Form.FLATTENED:
            deleted = "true" if row is None else "false"
            value = {**(row or before or {}), "__deleted": deleted, "__source_lsn": self._number}
        else:
            value = None if row is None else {**row, "source": {"lsn": self._number}}
        self.records.append(({"id": key}, value))


def changes(rows: list[Mapping[str, Any]]) -> Iterator[Change[int, Any]]:
    for row in rows:
        is_delete = row["operation"] == "DELETE"
        values = {1: row["1"]} if is_delete else {1: row["1"], 2: row["2"], 3: row.get("3")}
        yield Change(
            key=row["1"],
            sequence=(row["position"], row["ordinal"]),
            action=ChangeAction.DELETE if is_delete else ChangeAction.UPSERT,
            values=values,
            previous_key=row["previous_key"] and row["previous_key"]["1"],
        )


@given(
    first=STEPS, second=STEPS, form=st.sampled_from(Form), data=st.data(), has_field=st.booleans()
)
@examples(240)
def test_rows_of_a_history_fold_to_its_last_state(
    first: list[Step], second: list[Step], form: Form, data: st.DataObject, *, has_field: bool
) -> None:
    history = History(form, has_field=has_field)
    for step in first:
        history.apply(step, is_grown=False)
    begins_grown = len(history.records)
    for step in second:
        history.apply(step, is_grown=True)
    records = history.records
    if has_field:
        # A field decides, in whatever order records come and however often.
        begins_grown = 0
        repeated = data.draw(st.lists(st.sampled_from(records), max_size=3)) if records else []
        records = data.draw(st.permutations([*records, *repeated]))
    # Every task may read a stretch again.
    again = data.draw(st.integers(0, len(records)))
    rows: list[Mapping[str, Any]] = []
    for columns, begin, end in (
        (SMALL, 0, begins_grown),
        (GROWN, begins_grown, len(records)),
        (GROWN, max(begins_grown, again), len(records)),
    ):
        plan = change_plan(
            columns,
            envelope=Envelope.NONE if form is Form.PLAIN else Envelope.DEBEZIUM,
            sequence="source.lsn" if has_field else "",
        )
        batch = change_records(*records[begin:end], first_offset=begin)
        found = ChangeEvents(plan).read(batch, 0)
        assert found.rejected == ()
        rows += found.rows.to_pylist()
    outcomes = fold(changes(data.draw(st.permutations(rows)))).by_key
    state = {key: each.values for key, each in outcomes.items() if each.kind is KeyAction.UPSERT}
    assert state == {
        key: {1: row["id"], 2: row["name"], 3: row.get("extra")}
        for key, row in history.table.items()
    }
