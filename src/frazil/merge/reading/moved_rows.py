"""Rows that moved to another key with columns left out: what the mirror must hold of them.

Only the history of several keys together tells. It is collected, bounded, and replayed on the
driver by the specification itself, with row numbers in place of values: no value leaves Arrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as sf
from pyspark.sql.types import BooleanType, StructField, StructType

from frazil.clients.spark.task_errors import running_tasks
from frazil.merge.folding.fold import Change, ChangeAction, KeyAction, KeyOutcome, fold
from frazil.merge.reading.expected_rows import (
    DELETED,
    HI,
    IS_DELETE,
    LO,
    PREVIOUS_HI,
    PREVIOUS_LO,
    SEQUENCE,
    TRUNCATED,
    UNCHANGED,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from frazil.merge.reading.expected_rows import HistoryLayout

    Key = tuple[int, int]

# What a driver holds without a thought: key changes are rare, and those that leave columns out
# rarer still.
MOST_MOVES = 200_000
MOST_CHANGES = 1_000_000


@dataclass(frozen=True, slots=True)
class MovedRows:
    """The keys that rows moved to with columns left out, and the rows they must have now.

    ``keys`` and ``unjudged`` have hashes; the latter those whose history is too long to collect,
    or does not reach back to a change that sent everything. ``rows`` has what ``expected_rows``
    has.
    """

    keys: DataFrame
    rows: DataFrame | None
    unjudged: DataFrame | None
    unjudged_count: int


def load_moved_rows(
    session: SparkSession, history: DataFrame, layout: HistoryLayout, *, table: str
) -> MovedRows | None:
    """What must be under keys that rows moved to; None without such keys."""
    if not layout.can_move:
        return None
    is_move = sf.col(PREVIOUS_HI).isNotNull() & (sf.size(UNCHANGED) > 0) & ~sf.col(IS_DELETE)
    moves = history.where(is_move).select(HI, LO, PREVIOUS_HI, PREVIOUS_LO)
    with running_tasks(table, "looking for rows that moved to another key"):
        found = moves.limit(MOST_MOVES + 1).toArrow()
        if not found.num_rows:
            return None
        if found.num_rows > MOST_MOVES:
            return _none_judged(moves.select(HI, LO).distinct())
        moved, involved = _closure(found)
        keys = _hashes(session, moved)
        concerned = history.join(sf.broadcast(_hashes(session, involved)), [HI, LO])
        # The same change twice is one; the replay would take its second row for another.
        once = concerned.dropDuplicates([HI, LO, SEQUENCE])
        changes = once.limit(MOST_CHANGES + 1).toArrow()
    if changes.num_rows > MOST_CHANGES:
        return _none_judged(keys)
    rows, unjudged = replay(changes.combine_chunks(), moved, layout)
    return MovedRows(
        keys,
        session.createDataFrame(rows, schema=_schema(history, layout)),
        _hashes(session, unjudged) if unjudged else None,
        len(unjudged),
    )


def replay(changes: pa.Table, moved: set[Key], layout: HistoryLayout) -> tuple[pa.Table, set[Key]]:
    """The rows of the moved keys, and the keys for which the changes do not tell."""
    keys = list(zip(changes[HI].to_pylist(), changes[LO].to_pylist(), strict=True))
    found = fold(_spoken(changes, keys, layout), deletes=layout.deletes).by_key
    outcomes = {key: found[key] for key in moved if key in found}
    kept = {key: each for key, each in outcomes.items() if not _is_absent(each, layout)}
    unjudged = {key for key, each in kept.items() if each.missing}
    judged = [(key, each) for key, each in kept.items() if key not in unjudged]
    truncated = _truncated(changes, keys)
    columns = {
        HI: pa.array([key[0] for key, _ in judged], pa.int64()),
        LO: pa.array([key[1] for key, _ in judged], pa.int64()),
    }
    for number, name in enumerate(layout.names):
        places = pa.array([each.values[number] for _, each in judged], pa.int64())
        columns[name] = changes[name].take(places)
    columns[DELETED] = pa.array(
        [each.kind is KeyAction.SOFT_DELETE or key in truncated for key, each in judged], pa.bool_()
    )
    return pa.table(columns), unjudged


def _none_judged(keys: DataFrame) -> MovedRows:
    return MovedRows(keys, None, keys, keys.count())


def _closure(moves: pa.Table) -> tuple[set[Key], set[Key]]:
    """The keys that rows moved to, and with them all keys whose history they need."""
    came_from: dict[Key, set[Key]] = {}
    columns = (moves[name].to_pylist() for name in (HI, LO, PREVIOUS_HI, PREVIOUS_LO))
    for hi, lo, previous_hi, previous_lo in zip(*columns, strict=True):
        came_from.setdefault((hi, lo), set()).add((previous_hi, previous_lo))
    involved = set(came_from)
    waiting = list(came_from)
    while waiting:
        for key in came_from.get(waiting.pop(), set()) - involved:
            involved.add(key)
            waiting.append(key)
    return set(came_from), involved


def _hashes(session: SparkSession, keys: set[Key]) -> DataFrame:
    his, los = zip(*sorted(keys), strict=True)
    table = pa.table({HI: pa.array(his, pa.int64()), LO: pa.array(los, pa.int64())})
    return session.createDataFrame(table)


def _schema(history: DataFrame, layout: HistoryLayout) -> StructType:
    fields = [StructField(name, history.schema[name].dataType) for name in (HI, LO, *layout.names)]
    return StructType([*fields, StructField(DELETED, BooleanType())])


def _spoken(
    changes: pa.Table, keys: list[Key], layout: HistoryLayout
) -> Iterator[Change[Key, int]]:
    """The changes in the words of the specification; a value is the number of its row."""
    ids = {each.changelog_id: number for number, each in enumerate(layout.columns)}
    in_key = {name for name, _ in layout.key}
    optional = {n for n, each in enumerate(layout.columns) if each.changelog not in in_key}
    every = frozenset(ids.values())
    ranks = pc.rank(changes[SEQUENCE], tiebreaker="dense").to_pylist()
    names = (IS_DELETE, UNCHANGED, PREVIOUS_HI, PREVIOUS_LO)
    details = zip(*(changes[name].to_pylist() for name in names), strict=True)
    for row, (is_delete, unchanged, previous_hi, previous_lo) in enumerate(details):
        left_out = optional if is_delete else {ids[each] for each in unchanged or () if each in ids}
        yield Change(
            key=keys[row],
            sequence=ranks[row],
            action=ChangeAction.DELETE if is_delete else ChangeAction.UPSERT,
            values=dict.fromkeys(every - left_out, row),
            unchanged=frozenset(left_out),
            previous_key=None if previous_hi is None else (previous_hi, previous_lo),
        )


def _is_absent(outcome: KeyOutcome[Key, int], layout: HistoryLayout) -> bool:
    """Whether the mirror must have no row: removed, or only ever deleted."""
    if outcome.kind is KeyAction.SOFT_DELETE:
        in_key = {name for name, _ in layout.key}
        optional = {n for n, each in enumerate(layout.columns) if each.changelog not in in_key}
        return bool(optional) and outcome.missing == optional
    return outcome.kind is KeyAction.DELETE


def _truncated(changes: pa.Table, keys: list[Key]) -> set[Key]:
    """With soft deletes, the keys that had no change since the last TRUNCATE."""
    if TRUNCATED not in changes.column_names:
        return set()
    is_since = pc.greater_equal(changes[SEQUENCE], changes[TRUNCATED])
    since = pc.fill_null(is_since, pa.scalar(value=True)).to_pylist()
    return set(keys) - {key for key, is_later in zip(keys, since, strict=True) if is_later}
