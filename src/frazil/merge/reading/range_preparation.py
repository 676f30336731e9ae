"""Inspects an entire range before it is merged, and distributes it over tasks.

A task reads changes sorted by key, one key at a time. What concerns many keys is handled here: the
last TRUNCATE, and keys whose rows moved to another key with columns left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as sf

from frazil.clients.spark.task_errors import running_tasks
from frazil.merge.planning.changes import (
    ACTION,
    DELETE,
    HI,
    IS_UPDATE,
    LO,
    MERGED,
    PREVIOUS_HI,
    PREVIOUS_LO,
    SEQUENCE,
    TRUNCATE,
    UNCHANGED,
    SequenceValue,
    comparable,
    missing_sequences,
    null_keys,
    unknown_operations,
)
from frazil.merge.reading.changelog_reader import bucket
from frazil.mirror.index.key_reading import spark_type
from frazil.model.policy import Deletes, Order
from frazil.model.schema.types import Primitive
from frazil.model.table_name import quote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from frazil.model.schema.types import Scalar

_TASK = "__frazil_task"


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeFacts:
    """Counts of a range; ``truncated`` is its last TRUNCATE."""

    rows: int
    linked: int
    lowest: SequenceValue | None
    highest: SequenceValue | None
    truncated: SequenceValue | None


def load_range_facts(changes: DataFrame, *, table: str) -> RangeFacts:
    """Count the changes by kind; raises for changes that cannot be merged."""
    is_truncate = sf.col(ACTION) == TRUNCATE
    sequence = sf.col(SEQUENCE)
    with running_tasks(table, "inspecting the range"):
        facts = changes.agg(
            sf.count("*").alias("rows"),
            sf.count_if(sf.col(ACTION).isNull()).alias("unknown"),
            sf.count_if(sequence.isNull()).alias("unordered"),
            sf.count_if(sf.col(HI).isNull() & ~is_truncate).alias("null_keys"),
            sf.count_if(_is_linked(changes)).alias("linked"),
            sf.min(sequence).alias("lowest"),
            sf.max(sequence).alias("highest"),
            sf.max(sf.when(is_truncate, sequence)).alias("truncated"),
        ).toArrow()
    _refuse(facts)
    return RangeFacts(
        rows=_count(facts, "rows"),
        linked=_count(facts, "linked"),
        lowest=_sequence(facts, "lowest"),
        highest=_sequence(facts, "highest"),
        truncated=_sequence(facts, "truncated"),
    )


def _is_linked(changes: DataFrame) -> Column:
    if PREVIOUS_HI not in changes.columns or UNCHANGED not in changes.columns:
        return sf.lit(False)  # noqa: FBT003 - Spark's own way to say false
    return sf.col(PREVIOUS_HI).isNotNull() & (sf.size(UNCHANGED) > 0)


def _count(facts: pa.Table, name: str) -> int:
    return int(facts.column(name)[0].as_py())


def _sequence(facts: pa.Table, name: str) -> SequenceValue | None:
    value: SequenceValue | None = comparable(pa.concat_arrays(facts.column(name).chunks))[0].as_py()
    return value


def _refuse(facts: pa.Table) -> None:
    if unknown := _count(facts, "unknown"):
        raise unknown_operations(unknown)
    if unordered := _count(facts, "unordered"):
        raise missing_sequences(unordered)
    if nulls := _count(facts, "null_keys"):
        raise null_keys(nulls)


@dataclass(frozen=True, slots=True, kw_only=True)
class RangePreparation:
    """How a range is distributed over tasks once its facts are known.

    ``empties_mirror`` says that a TRUNCATE removes all rows of the mirror; a late one, and one with
    soft deletes, becomes a DELETE of each affected row instead.
    """

    bits: int
    truncated: SequenceValue | None
    empties_mirror: bool
    has_linked: bool

    @property
    def linked_task(self) -> int | None:
        """The task that gets all keys that depend on each other."""
        return 2**self.bits if self.has_linked else None


def plan_preparation(
    facts: RangeFacts,
    *,
    bits: int,
    order: Order,
    deletes: Deletes,
    merged: SequenceValue | None,
    truncated: SequenceValue | None,
) -> RangePreparation:
    """Decide the effect of the TRUNCATEs of a range.

    ``merged`` is the highest sequence merged before, ``truncated`` the last TRUNCATE: a repeated
    one removes nothing.
    """
    is_repeated = facts.truncated == truncated
    truncated = None if deletes is Deletes.IGNORE or is_repeated else facts.truncated
    is_late = (
        truncated is not None
        and order is Order.PER_KEY
        and merged is not None
        and _at_most(truncated, merged)
    )
    empties = truncated is not None and deletes is Deletes.APPLY and not is_late
    return RangePreparation(
        bits=bits, truncated=truncated, empties_mirror=empties, has_linked=facts.linked > 0
    )


def _at_most(one: SequenceValue, other: SequenceValue) -> bool:
    return bool(one <= other)  # type: ignore[operator]


def sequence_literal(value: SequenceValue, type_: Scalar) -> Column:
    """The value as a Spark literal of the sequence column's type.

    Timestamps are built from their microseconds: Python's would be converted by the time zones of
    driver and session, and end with the year 9999.
    """
    match type_:
        case Primitive.TIMESTAMPTZ:
            return sf.timestamp_micros(sf.lit(value))
        case Primitive.TIMESTAMP:
            start = sf.lit("1970-01-01").cast("timestamp_ntz")
            return sf.timestamp_add("MICROSECOND", sf.lit(value), start)
        case _:
            return sf.lit(value).cast(spark_type(type_)[0])


def without_truncated(
    changes: DataFrame, preparation: RangePreparation, *, deletes: Deletes, type_: Scalar
) -> DataFrame:
    """The changes after the TRUNCATE; with soft deletes all of them."""
    rows = changes.where(sf.col(ACTION) != TRUNCATE)
    if preparation.truncated is None or deletes is Deletes.SOFT:
        return rows
    return rows.where(sf.col(SEQUENCE) >= sequence_literal(preparation.truncated, type_))


def deletes_of_truncate(
    changes: DataFrame,
    met: DataFrame,
    truncated: SequenceValue,
    *,
    key: Sequence[str],
    sequence: str | None,
    type_: Scalar,
) -> DataFrame:
    """A DELETE at the TRUNCATE's sequence for each affected key, as changes.

    ``met`` has hash and key columns of the mirror's rows, and of the range's own earlier changes,
    under the names that ``changes`` gives them; ``sequence`` is the column that the mirror keeps.
    """
    at = sequence_literal(truncated, type_)
    no = sf.lit(False)  # noqa: FBT003 - Spark's own way to say false
    own = {ACTION: sf.lit(DELETE).cast("tinyint"), SEQUENCE: at, IS_UPDATE: no, MERGED: no}
    own |= {} if sequence is None else {sequence: at}
    kept = {HI, LO, *key}
    columns = [
        sf.col(quote(each.name))
        if each.name in kept
        else own.get(each.name, sf.lit(None)).cast(each.dataType).alias(each.name)
        for each in changes.schema.fields
    ]
    once = met.dropDuplicates([HI, LO])
    return once.select(*columns)


def spread_by_hash(changes: DataFrame, bits: int) -> DataFrame:
    """Each change in the partition of its hash bucket; those without a hash in the first."""
    if bits == 0:
        return changes.coalesce(1)
    return changes.repartitionById(2**bits, sf.coalesce(bucket(bits), sf.lit(0)))


def spread(changes: DataFrame, preparation: RangePreparation) -> DataFrame:
    """Each change in the partition of its hash bucket; keys that depend on each other in the last.

    A row with linked columns needs every change of its own key and of its previous one, so both
    keys are taken out of their buckets.
    """
    if preparation.linked_task is None:
        return spread_by_hash(changes, preparation.bits)
    linked = changes.where(_is_linked(changes))
    own = linked.select(HI, LO)
    previous = linked.select(sf.col(PREVIOUS_HI).alias(HI), sf.col(PREVIOUS_LO).alias(LO))
    involved = own.union(previous).distinct().withColumn(_TASK, sf.lit(preparation.linked_task))
    routed = changes.join(involved, [HI, LO], "left")
    chosen = sf.coalesce(sf.col(_TASK), bucket(preparation.bits))
    columns = [sf.col(quote(name)) for name in changes.columns]
    return routed.repartitionById(preparation.linked_task + 1, chosen).select(*columns)
