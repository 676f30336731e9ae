"""Changes as a merge task receives them, and its results as those of the specification."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa

from frazil.merge.folding.arrow_fold import SortedFolder
from frazil.merge.folding.change_rows import DELETE, SOFT_DELETE, UPSERT, FoldColumn, FoldLayout
from frazil.merge.folding.fold import Change, ChangeAction, KeyAction, KeyOutcome
from frazil.merge.planning.changes import (
    ACTION,
    HI,
    IS_UPDATE,
    LO,
    PREVIOUS_HI,
    PREVIOUS_LO,
    SEQUENCE,
    UNCHANGED,
)
from frazil.model.policy import Deletes
from tests.unit.merge.folding.histories import KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from frazil.merge.folding.change_rows import FoldedKeys

# By the number of the key: signed comparison would sort them otherwise, and two share a half.
HASHES = [(0, 5), (1, 0), (2**63 - 1, 0), (2**63, 1), (2**63, 2**63 + 1), (2**64 - 1, 2**64 - 1)]
KINDS = {UPSERT: KeyAction.UPSERT, DELETE: KeyAction.DELETE, SOFT_DELETE: KeyAction.SOFT_DELETE}
ENTRIES = pa.list_(pa.struct([("text", pa.string())]))
COLUMNS = (
    FoldColumn("id", KEY, always_sent=True),
    FoldColumn("name", 2),
    FoldColumn("tags", 3),
    FoldColumn("code", 4),
)


@dataclass(frozen=True)
class SequenceType:
    """How a changelog may count: an Arrow type and the value for a number."""

    type: pa.DataType
    value: Callable[[int], object]


SEQUENCES = {
    "text": SequenceType(pa.string(), lambda number: f"0001/{number:016x}"),
    "number": SequenceType(pa.int64(), lambda number: number),
    "decimal": SequenceType(pa.decimal128(38, 0), Decimal),
    "time": SequenceType(
        pa.timestamp("us", tz="UTC"),
        lambda number: datetime(2000, 1, 1, tzinfo=UTC) + timedelta(microseconds=number),
    ),
}


def layout(deletes: Deletes = Deletes.APPLY) -> FoldLayout:
    return FoldLayout(COLUMNS, deletes)


def signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


def number_of(change: Change[int, object]) -> int:
    assert isinstance(change.sequence, int)
    return change.sequence


def batch_of(
    changes: Iterable[Change[int, object]],
    *,
    sequence: SequenceType = SEQUENCES["text"],
    updates: frozenset[int] = frozenset(),
) -> pa.RecordBatch:
    """The changes as columns, in the order given; ``updates`` are sequences of UPDATEs."""
    sent = list(changes)
    hashes = [HASHES[change.key] for change in sent]
    previous = [
        (None, None) if each.previous_key is None else HASHES[each.previous_key] for each in sent
    ]
    numbers = [number_of(change) for change in sent]
    columns: dict[str, pa.Array] = {
        HI: pa.array([signed(hi) for hi, _ in hashes], pa.int64()),
        LO: pa.array([signed(lo) for _, lo in hashes], pa.int64()),
        ACTION: pa.array([int(each.action is ChangeAction.DELETE) for each in sent], pa.int8()),
        SEQUENCE: pa.array([sequence.value(number) for number in numbers], sequence.type),
        UNCHANGED: pa.array([_unchanged(each) for each in sent], pa.list_(pa.int32())),
        PREVIOUS_HI: pa.array(
            [None if hi is None else signed(hi) for hi, _ in previous], pa.int64()
        ),
        PREVIOUS_LO: pa.array(
            [None if lo is None else signed(lo) for _, lo in previous], pa.int64()
        ),
        IS_UPDATE: pa.array([number in updates for number in numbers], pa.bool_()),
        "id": pa.array([change.values[KEY] for change in sent], pa.int64()),
        "name": pa.array([change.values.get(2) for change in sent], pa.string()),
        "tags": pa.array([_tags(change.values.get(3)) for change in sent], ENTRIES),
        "code": pa.array([change.values.get(4) for change in sent], pa.large_string()),
    }
    return pa.RecordBatch.from_pydict(columns)


def in_order(changes: Iterable[Change[int, object]]) -> list[Change[int, object]]:
    return sorted(changes, key=lambda change: (HASHES[change.key], change.sequence))


def folded(batches: Iterable[pa.RecordBatch], layout: FoldLayout) -> list[FoldedKeys]:
    """Everything that a folder hands out."""
    folder = SortedFolder(layout)
    handed_out = [*map(folder.push, batches), folder.finish()]
    return [each for each in handed_out if each is not None]


def outcomes_in(results: Sequence[FoldedKeys]) -> dict[int, KeyOutcome[int, object]]:
    """What the results say of each key, which must come in order and once."""
    keys = [key for each in results for key in zip(each.hi.tolist(), each.lo.tolist(), strict=True)]
    assert keys == sorted(set(keys))
    outcomes = [outcome for each in results for outcome in _outcomes(each)]
    return {HASHES.index(key): outcome for key, outcome in zip(keys, outcomes, strict=True)}


def _outcomes(result: FoldedKeys) -> list[KeyOutcome[int, object]]:
    found: list[KeyOutcome[int, object]] = []
    for index, row in enumerate(result.rows.to_pylist()):
        kind = KINDS[int(result.action[index])]
        missing = frozenset(id_ for id_, mask in result.missing.items() if mask[index])
        if kind is KeyAction.DELETE:
            assert not missing
            assert not result.needs_mirror[index]
            found.append(KeyOutcome(kind))
            continue
        assert all(row[column.name] is None for column in COLUMNS if column.id in missing)
        source = (int(result.source_hi[index]), int(result.source_lo[index]))
        found.append(
            KeyOutcome(
                kind,
                {column.id: _value(row, column) for column in COLUMNS if column.id not in missing},
                missing,
                HASHES.index(source) if result.needs_mirror[index] else None,
            )
        )
    return found


def _value(row: dict[str, object], column: FoldColumn) -> object:
    value = row[column.name]
    return value[0]["text"] if isinstance(value, list) else value


def _tags(value: object) -> object:
    return None if value is None else [{"text": value}]


def _unchanged(change: Change[int, object]) -> list[int] | None:
    """The ids that a changelog would name, some twice, with one that the mirror has not."""
    if not change.unchanged:
        return None
    return [*change.unchanged, *change.unchanged, 99]
