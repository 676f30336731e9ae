"""Two sets of rows by key: checksums of ranges first, then the keys that differ."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, MapType, StructType

from frazil.merge.expected_rows import HI, LO

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, Row

RANGES = 256
# Enough to find out what they have in common, few enough to read.
SAMPLES = 20

_RANGE_BITS = 8
_CHECKSUM, _COUNT, _KIND, _KEY = "checksum", "count", "kind", "key"
# Every digit that the type can hold: JSON would cut a time to milliseconds.
_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


class DifferenceKind(StrEnum):
    """How a key differs."""

    MISSING = "missing"
    """It should be there and is not."""
    SURPLUS = "surplus"
    """It is there and should not, or more than once."""
    DIFFERENT = "different"
    """Its row has other values."""


@dataclass(frozen=True, slots=True)
class KeyDifference:
    """One key that differs, by its hash; the key itself only when somebody allowed values."""

    kind: DifferenceKind
    key_hash: str
    key: str | None = None


@dataclass(frozen=True, slots=True)
class RangeTotals:
    """Rows of one side, and in which ranges of key hashes the sides are not alike."""

    expected: int
    found: int
    differing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Differences:
    """How many keys differ, and some of them."""

    missing: int = 0
    surplus: int = 0
    different: int = 0
    samples: tuple[KeyDifference, ...] = ()


def with_checksums(
    rows: DataFrame, names: Sequence[str], *, key_names: Sequence[str] = ()
) -> DataFrame:
    """Hash, checksum over the named columns, and the key as text when its columns are named."""
    schema = rows.schema
    parts: list[Column] = []
    for name in names:
        # Spark's hash passes over nulls, so that a null and its place are said beside it.
        parts += [_comparable(sf.col(name), schema[name].dataType), sf.col(name).isNull()]
    key = sf.concat_ws(", ", *(sf.col(name).cast("string") for name in key_names))
    return rows.select(HI, LO, sf.xxhash64(*parts).alias(_CHECKSUM), key.alias(_KEY))


def load_range_totals(expected: DataFrame, found: DataFrame) -> RangeTotals:
    """Compare the sums of the checksums range by range; one look at every row."""
    ours, theirs = _load_totals(expected), _load_totals(found)
    nothing = (0, 0)
    return RangeTotals(
        expected=sum(count for count, _ in ours.values()),
        found=sum(count for count, _ in theirs.values()),
        differing=tuple(
            number
            for number in range(RANGES)
            if ours.get(number, nothing) != theirs.get(number, nothing)
        ),
    )


def load_differences(
    expected: DataFrame, found: DataFrame, ranges: Sequence[int], *, show_keys: bool
) -> Differences:
    """The keys of these ranges that differ."""
    if not ranges:
        return Differences()
    in_ranges = _range().isin(*ranges)
    ours = _by_key(expected.where(in_ranges), "ours")
    theirs = _by_key(found.where(in_ranges), "theirs")
    ours_count, theirs_count = sf.col(f"ours_{_COUNT}"), sf.col(f"theirs_{_COUNT}")
    kind = (
        sf.when(theirs_count.isNull(), DifferenceKind.MISSING.value)
        .when(ours_count.isNull() | (theirs_count > ours_count), DifferenceKind.SURPLUS.value)
        .when(sf.col("ours") != sf.col("theirs"), DifferenceKind.DIFFERENT.value)
    )
    key = sf.coalesce(sf.col(f"ours_{_KEY}"), sf.col(f"theirs_{_KEY}"))
    differing = (
        ours.join(theirs, [HI, LO], "full_outer")
        .select(HI, LO, kind.alias(_KIND), key.alias(_KEY))
        .where(sf.col(_KIND).isNotNull())
    )
    counts = {row[_KIND]: row[_COUNT] for row in differing.groupBy(_KIND).count().collect()}
    samples = differing.orderBy(_KIND, HI, LO).limit(SAMPLES).collect()
    return Differences(
        missing=counts.get(DifferenceKind.MISSING.value, 0),
        surplus=counts.get(DifferenceKind.SURPLUS.value, 0),
        different=counts.get(DifferenceKind.DIFFERENT.value, 0),
        samples=tuple(_sample(row, show_keys=show_keys) for row in samples),
    )


def _sample(row: Row, *, show_keys: bool) -> KeyDifference:
    # Both halves as the unsigned numbers they are, the way the index writes them.
    digits = f"{row[HI] % 2**64:016x}{row[LO] % 2**64:016x}"
    return KeyDifference(DifferenceKind(row[_KIND]), digits, row[_KEY] if show_keys else None)


def _load_totals(rows: DataFrame) -> dict[int, tuple[int, int]]:
    """Count and sum of checksums by range."""
    # Wide enough for the sum of any number of rows.
    total = sf.sum(sf.col(_CHECKSUM).cast("decimal(38,0)"))
    by_range = rows.groupBy(_range().alias("range"))
    found = by_range.agg(sf.count("*").alias(_COUNT), total.alias(_CHECKSUM)).collect()
    return {row["range"]: (row[_COUNT], int(row[_CHECKSUM])) for row in found}


def _by_key(rows: DataFrame, name: str) -> DataFrame:
    return rows.groupBy(HI, LO).agg(
        sf.sum(sf.col(_CHECKSUM).cast("decimal(38,0)")).alias(name),
        sf.count("*").alias(f"{name}_{_COUNT}"),
        sf.max(_KEY).alias(f"{name}_{_KEY}"),
    )


def _range() -> Column:
    return sf.shiftrightunsigned(HI, 64 - _RANGE_BITS).cast("int")


def _comparable(column: Column, type_: DataType) -> Column:
    """What has parts becomes text: Spark's hash passes over nulls inside, and refuses maps."""
    if isinstance(type_, MapType):
        return sf.to_json(sf.map_entries(column), _JSON)
    if isinstance(type_, StructType | ArrayType):
        return sf.to_json(column, _JSON)
    return column
