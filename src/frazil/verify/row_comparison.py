"""Compares two sets of rows by key: checksums of ranges first, then the keys that differ."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, MapType, StructType

from frazil.merge.reading.expected_rows import HI, LO

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TypeAlias

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, Row

    # By range: how many rows, and the sum of their checksums.
    Totals: TypeAlias = Mapping[int, tuple[int, int]]

RANGES = 256
# Enough to see a pattern, few enough to read.
SAMPLES = 20

_RANGE_BITS = 8
KIND, KEY = "kind", "key"
_CHECKSUM, _COUNT, _RANGES = "checksum", "count", "ranges"
# All digits of the type: JSON would truncate a time to milliseconds.
_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


class DifferenceKind(StrEnum):
    """How a key differs."""

    MISSING = "missing"
    """Expected, but not found."""
    SURPLUS = "surplus"
    """Found, but not expected, or found more than once."""
    DIFFERENT = "different"
    """Found with other values."""


@dataclass(frozen=True, slots=True)
class KeyDifference:
    """One key that differs, by its hash; the key itself only if values may be shown."""

    kind: DifferenceKind
    key_hash: str
    key: str | None = None


@dataclass(frozen=True, slots=True)
class RangeTotals:
    """Row counts, and the ranges of key hashes that differ."""

    expected: int
    found: int
    differing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Differences:
    """How many keys differ, in which ranges, and some of them."""

    missing: int = 0
    surplus: int = 0
    different: int = 0
    ranges: frozenset[int] = frozenset()
    samples: tuple[KeyDifference, ...] = ()


def with_checksums(
    rows: DataFrame, names: Sequence[str], *, key_names: Sequence[str] = ()
) -> DataFrame:
    """Hash, checksum over the named columns, and the key as texts when its columns are named."""
    schema = rows.schema
    parts: list[Column] = []
    for name in names:
        # Spark's hash skips nulls, so the null flags are hashed as well.
        parts += [_comparable(sf.col(name), schema[name].dataType), sf.col(name).isNull()]
    key = sf.array(*(sf.col(name).cast("string") for name in key_names))
    return rows.select(HI, LO, sf.xxhash64(*parts).alias(_CHECKSUM), key.alias(KEY))


def load_range_totals(expected: DataFrame, found: DataFrame) -> RangeTotals:
    """Compare the sums of the checksums by range; reads every row once."""
    return compare_totals(load_totals(expected), load_totals(found))


def load_totals(rows: DataFrame) -> Totals:
    """Count and sum of checksums by range."""
    # Wide enough for any number of rows.
    total = sf.sum(sf.col(_CHECKSUM).cast("decimal(38,0)"))
    by_range = rows.groupBy(key_range().alias("range"))
    found = by_range.agg(sf.count("*").alias(_COUNT), total.alias(_CHECKSUM)).collect()
    return {row["range"]: (row[_COUNT], int(row[_CHECKSUM])) for row in found}


def compare_totals(expected: Totals, found: Totals) -> RangeTotals:
    """The ranges in which the two sides differ."""
    nothing = (0, 0)
    return RangeTotals(
        expected=sum(count for count, _ in expected.values()),
        found=sum(count for count, _ in found.values()),
        differing=tuple(
            number
            for number in range(RANGES)
            if expected.get(number, nothing) != found.get(number, nothing)
        ),
    )


def load_differences(
    expected: DataFrame, found: DataFrame, ranges: Sequence[int], *, show_keys: bool
) -> Differences:
    """The keys of these ranges that differ."""
    if not ranges:
        return Differences()
    in_ranges = key_range().isin(*ranges)
    differing = differing_keys(expected.where(in_ranges), found.where(in_ranges))
    return summarize(differing, show_keys=show_keys)


def differing_keys(expected: DataFrame, found: DataFrame) -> DataFrame:
    """Hash, kind of difference and key of all that differ."""
    ours, theirs = _by_key(expected, "ours"), _by_key(found, "theirs")
    ours_count, theirs_count = sf.col(f"ours_{_COUNT}"), sf.col(f"theirs_{_COUNT}")
    kind = (
        sf.when(theirs_count.isNull(), DifferenceKind.MISSING.value)
        .when(ours_count.isNull() | (theirs_count > ours_count), DifferenceKind.SURPLUS.value)
        .when(sf.col("ours") != sf.col("theirs"), DifferenceKind.DIFFERENT.value)
    )
    key = sf.coalesce(sf.col(f"ours_{KEY}"), sf.col(f"theirs_{KEY}"))
    return (
        ours.join(theirs, [HI, LO], "full_outer")
        .select(HI, LO, kind.alias(KIND), key.alias(KEY))
        .where(sf.col(KIND).isNotNull())
    )


def summarize(differing: DataFrame, *, show_keys: bool) -> Differences:
    """How many of these there are, and some of them."""
    totals = differing.groupBy(KIND).agg(
        sf.count("*").alias(_COUNT), sf.collect_set(key_range()).alias(_RANGES)
    )
    found = {row[KIND]: row for row in totals.collect()}
    if not found:
        return Differences()
    counts = {kind: row[_COUNT] for kind, row in found.items()}
    samples = differing.orderBy(KIND, HI, LO).limit(SAMPLES).collect()
    return Differences(
        missing=counts.get(DifferenceKind.MISSING.value, 0),
        surplus=counts.get(DifferenceKind.SURPLUS.value, 0),
        different=counts.get(DifferenceKind.DIFFERENT.value, 0),
        ranges=frozenset(number for row in found.values() for number in row[_RANGES]),
        samples=tuple(_sample(row, show_keys=show_keys) for row in samples),
    )


def _sample(row: Row, *, show_keys: bool) -> KeyDifference:
    # Both halves as unsigned numbers, as the index writes them. A key with a null has no hash: no
    # merge wrote that row.
    halves = [0 if half is None else half % 2**64 for half in (row[HI], row[LO])]
    digits = "".join(f"{half:016x}" for half in halves)
    key = ", ".join("null" if each is None else each for each in row[KEY]) if show_keys else None
    return KeyDifference(DifferenceKind(row[KIND]), digits, key)


def _by_key(rows: DataFrame, name: str) -> DataFrame:
    return rows.groupBy(HI, LO).agg(
        sf.sum(sf.col(_CHECKSUM).cast("decimal(38,0)")).alias(name),
        sf.count("*").alias(f"{name}_{_COUNT}"),
        sf.max(KEY).alias(f"{name}_{KEY}"),
    )


def key_range() -> Column:
    """Which range a row belongs to; rows without a hash are in the first."""
    number = sf.shiftrightunsigned(HI, 64 - _RANGE_BITS).cast("int")
    return sf.coalesce(number, sf.lit(0))


def _comparable(column: Column, type_: DataType) -> Column:
    """Nested values become text: Spark's hash skips nested nulls, and refuses maps."""
    if isinstance(type_, MapType):
        return sf.to_json(sf.map_entries(column), _JSON)
    if isinstance(type_, StructType | ArrayType):
        return sf.to_json(column, _JSON)
    return column
