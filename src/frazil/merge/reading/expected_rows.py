"""Computes the rows a mirror must have from its changelog, in Spark and without the merge code.

One aggregation by key: the last change decides whether the row exists, and each column comes from
the last change that sent it. Rows that moved to another key with columns left out need the history
of several keys. It is collected, bounded, and replayed on the driver by ``fold.py``, with row
numbers instead of values: no value leaves Arrow.
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
from frazil.mirror.index.key_expressions import key_hash_columns
from frazil.model.change import Operation, spellings
from frazil.model.policy import Deletes
from frazil.model.table_name import quote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from frazil.merge.planning.changelog_columns import ChangelogColumns

    Key = tuple[int, int]

HI, LO, SEQUENCE, IS_DELETE = "hi", "lo", "sequence", "is_delete"
UNCHANGED, PREVIOUS_HI, PREVIOUS_LO = "unchanged", "previous_hi", "previous_lo"
DELETED, TRUNCATED = "deleted", "truncated"

_IS_TRUNCATE = "is_truncate"
# Fits easily into the driver's memory: key changes that leave columns out are rare.
MOST_MOVES = 200_000
MOST_CHANGES = 1_000_000


@dataclass(frozen=True, slots=True)
class ComparedColumn:
    """A column of the mirror, and the column of the changelog that it is mapped from."""

    mirror: str
    type: DataType
    changelog: str
    changelog_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryLayout:
    """The changelog's columns by role; compared columns are named by number afterwards."""

    reads: ChangelogColumns
    columns: tuple[ComparedColumn, ...]
    deletes: Deletes

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the compared columns from here on; numbers collide with no real name."""
        return tuple(f"c{number}" for number in range(len(self.columns)))

    @property
    def can_move(self) -> bool:
        """Whether rows may have moved to another key with columns left out."""
        return self.reads.unchanged is not None and self.reads.previous_key is not None


def read_history(changelog: DataFrame, layout: HistoryLayout) -> DataFrame:
    """Every effective change: hashed, with the mirror's types, and nothing before a TRUNCATE.

    With soft deletes a TRUNCATE removes nothing, and its sequence is added to every row.
    """
    operation = sf.upper(named_column(layout.reads.operation.name))
    is_truncate = operation.isin(*spellings(Operation.TRUNCATE))
    hi, lo = key_hash_columns(
        [(named_column(name), type_) for name, type_ in layout.reads.typed_key]
    )
    changes = changelog.select(
        hi.alias(HI),
        lo.alias(LO),
        named_column(layout.reads.sequence.name).alias(SEQUENCE),
        operation.isin(*spellings(Operation.DELETE)).alias(IS_DELETE),
        is_truncate.alias(_IS_TRUNCATE),
        *_partial(layout),
        *_values(layout),
    )
    truncates = changes.where(_IS_TRUNCATE)
    last = truncates.agg(sf.max(SEQUENCE).alias(TRUNCATED))
    has_key = ~sf.col(_IS_TRUNCATE) & sf.col(HI).isNotNull()
    kept = changes.where(has_key).drop(_IS_TRUNCATE).crossJoin(sf.broadcast(last))
    if layout.deletes is Deletes.SOFT:
        return kept
    if layout.deletes is Deletes.IGNORE:
        return kept.where(~sf.col(IS_DELETE)).drop(TRUNCATED)
    # A TRUNCATE precedes other changes of its sequence.
    is_after = sf.col(TRUNCATED).isNull() | (sf.col(SEQUENCE) >= sf.col(TRUNCATED))
    return kept.where(is_after).drop(TRUNCATED)


def expected_rows(history: DataFrame, layout: HistoryLayout) -> DataFrame:
    """One row for each key that the mirror must have: its hash, its values, whether it is deleted.

    Not for keys whose rows moved in from another key with columns left out.
    """
    upserted = sf.when(~sf.col(IS_DELETE), sf.col(SEQUENCE))
    found = history.groupBy(HI, LO).agg(
        sf.max(upserted).alias("upserted"),
        sf.max(SEQUENCE).alias("changed"),
        *_latest(layout, upserted),
        *([sf.max(TRUNCATED).alias(TRUNCATED)] if layout.deletes is Deletes.SOFT else []),
    )
    is_there = sf.col("upserted").isNotNull()
    is_gone = sf.col("changed") > sf.col("upserted")
    if layout.deletes is Deletes.SOFT:
        is_gone = is_gone | sf.coalesce(sf.col(TRUNCATED) > sf.col("upserted"), sf.expr("false"))
    else:
        is_there = is_there & ~is_gone
        is_gone = sf.expr("false")
    return found.where(is_there).select(HI, LO, *_unpacked(layout), is_gone.alias(DELETED))


def named_column(name: str) -> Column:
    """A column by its exact name, which may have dots."""
    return sf.col(quote(name))


def _values(layout: HistoryLayout) -> list[Column]:
    return [
        named_column(each.changelog).cast(each.type).alias(name)
        for name, each in zip(layout.names, layout.columns, strict=True)
    ]


def _partial(layout: HistoryLayout) -> list[Column]:
    columns, reads = [], layout.reads
    if reads.unchanged is not None:
        columns.append(named_column(reads.unchanged.name).alias(UNCHANGED))
    if reads.previous_key is not None:
        previous = named_column(reads.previous_key.name)
        members = [previous[each.name] for each in reads.previous_members]
        types = [type_ for _, type_ in reads.typed_key]
        hi, lo = key_hash_columns(list(zip(members, types, strict=True)))
        columns += [hi.alias(PREVIOUS_HI), sf.when(hi.isNotNull(), lo).alias(PREVIOUS_LO)]
    return columns


def _latest(layout: HistoryLayout, upserted: Column) -> list[Column]:
    """For each column its value in the last change that sent it; wrapped, as it may be null."""
    if layout.reads.unchanged is None:
        return [sf.max_by(sf.struct(*layout.names), upserted).alias("row")]
    latest = []
    for name, each in zip(layout.names, layout.columns, strict=True):
        is_sent = ~sf.coalesce(
            sf.array_contains(UNCHANGED, sf.lit(each.changelog_id)), sf.expr("false")
        )
        latest.append(sf.max_by(sf.struct(name), sf.when(is_sent, upserted)).alias(name))
    return latest


def _unpacked(layout: HistoryLayout) -> list[Column]:
    if layout.reads.unchanged is None:
        return [sf.col("row")[name].alias(name) for name in layout.names]
    return [sf.col(name)[name].alias(name) for name in layout.names]


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
    """The expected rows of keys that rows moved to; None without such keys."""
    if not layout.can_move:
        return None
    is_move = sf.col(PREVIOUS_HI).isNotNull() & (sf.size(UNCHANGED) > 0) & ~sf.col(IS_DELETE)
    moves = history.where(is_move).select(HI, LO, PREVIOUS_HI, PREVIOUS_LO)
    with running_tasks(table, "finding rows that moved to another key"):
        found = moves.limit(MOST_MOVES + 1).toArrow()
        if not found.num_rows:
            return None
        if found.num_rows > MOST_MOVES:
            return _none_judged(moves.select(HI, LO).distinct())
        moved, involved = _closure(found)
        keys = _hashes(session, moved)
        concerned = history.join(sf.broadcast(_hashes(session, involved)), [HI, LO])
        # A repeated change counts once; the replay would treat its second row as another change.
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
    """The rows of the moved keys, and the keys that the changes do not determine."""
    keys = list(zip(changes[HI].to_pylist(), changes[LO].to_pylist(), strict=True))
    found = fold(_as_changes(changes, keys, layout), deletes=layout.deletes).by_key
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
        row_numbers = pa.array([each.values[number] for _, each in judged], pa.int64())
        columns[name] = changes[name].take(row_numbers)
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


def _as_changes(
    changes: pa.Table, keys: list[Key], layout: HistoryLayout
) -> Iterator[Change[Key, int]]:
    """The changes as input of ``fold``; a value is the number of its row."""
    ids = {each.changelog_id: number for number, each in enumerate(layout.columns)}
    in_key = {each.name for each in layout.reads.key}
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
        in_key = {each.name for each in layout.reads.key}
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
