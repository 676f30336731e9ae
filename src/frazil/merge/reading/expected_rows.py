"""Computes the rows a mirror must have from its changelog, in Spark and without the merge code.

One aggregation by key: the last change decides whether the row exists, and each column comes from
the last change that sent it. Rows that moved to another key with columns left out need the history
of several keys; those few are replayed on the driver by ``moved_rows``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from frazil.mirror.index.key_expressions import key_hash_columns
from frazil.model.change import Operation, spellings
from frazil.model.policy import Deletes
from frazil.model.table_name import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from frazil.model.schema.types import Scalar

HI, LO, SEQUENCE, IS_DELETE = "hi", "lo", "sequence", "is_delete"
UNCHANGED, PREVIOUS_HI, PREVIOUS_LO = "unchanged", "previous_hi", "previous_lo"
DELETED, TRUNCATED = "deleted", "truncated"

_IS_TRUNCATE = "is_truncate"


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

    key: tuple[tuple[str, Scalar], ...]
    sequence: str
    operation: str
    unchanged: str | None
    previous_key: str | None
    previous_members: tuple[str, ...]
    columns: tuple[ComparedColumn, ...]
    deletes: Deletes

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the compared columns from here on; numbers collide with no real name."""
        return tuple(f"c{number}" for number in range(len(self.columns)))

    @property
    def can_move(self) -> bool:
        """Whether rows may have moved to another key with columns left out."""
        return self.unchanged is not None and self.previous_key is not None


def read_history(changelog: DataFrame, layout: HistoryLayout) -> DataFrame:
    """Every effective change: hashed, with the mirror's types, and nothing before a TRUNCATE.

    With soft deletes a TRUNCATE removes nothing, and its sequence is added to every row.
    """
    operation = sf.upper(named_column(layout.operation))
    is_truncate = operation.isin(*spellings(Operation.TRUNCATE))
    hi, lo = key_hash_columns([(named_column(name), type_) for name, type_ in layout.key])
    changes = changelog.select(
        hi.alias(HI),
        lo.alias(LO),
        named_column(layout.sequence).alias(SEQUENCE),
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
    columns = []
    if layout.unchanged is not None:
        columns.append(named_column(layout.unchanged).alias(UNCHANGED))
    if layout.previous_key is not None:
        previous = named_column(layout.previous_key)
        hi, lo = key_hash_columns(
            [
                (previous[member], type_)
                for member, (_, type_) in zip(layout.previous_members, layout.key, strict=True)
            ]
        )
        columns += [hi.alias(PREVIOUS_HI), sf.when(hi.isNotNull(), lo).alias(PREVIOUS_LO)]
    return columns


def _latest(layout: HistoryLayout, upserted: Column) -> list[Column]:
    """For each column its value in the last change that sent it; wrapped, as it may be null."""
    if layout.unchanged is None:
        return [sf.max_by(sf.struct(*layout.names), upserted).alias("row")]
    latest = []
    for name, each in zip(layout.names, layout.columns, strict=True):
        is_sent = ~sf.coalesce(
            sf.array_contains(UNCHANGED, sf.lit(each.changelog_id)), sf.expr("false")
        )
        latest.append(sf.max_by(sf.struct(name), sf.when(is_sent, upserted)).alias(name))
    return latest


def _unpacked(layout: HistoryLayout) -> list[Column]:
    if layout.unchanged is None:
        return [sf.col("row")[name].alias(name) for name in layout.names]
    return [sf.col(name)[name].alias(name) for name in layout.names]
