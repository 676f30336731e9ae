"""Spark's expressions give the hashes of the specification (``key_hash.py``), in every session."""

from __future__ import annotations

import hashlib
import math
import random
import struct
import uuid
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal as Number
from itertools import product
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from frazil.errors import UnsupportedSchemaChangeError
from frazil.mirror.index.key_expressions import UuidForm, key_hash_columns
from frazil.model.schema.types import Decimal, Fixed, Primitive
from tests.support.codec.golden_keys import golden_keys
from tests.support.codec.key_hash import encode_key, hash_key, xxh64_of_long
from tests.support.codec.xxh64_inverse import lane_of, long_of_lane, seeded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from frazil.model.schema.types import Scalar

pytestmark = pytest.mark.spark

SEED = 20_260_101
ROWS = 3000
# In New York the golden timestamp without a zone is in the hour that the summer time skips.
SESSIONS = [*product(("UTC", "America/New_York"), ("true", "false"))]
ARROW = {
    Primitive.INT: pa.int32(), Primitive.LONG: pa.int64(), Primitive.FLOAT: pa.float32(),
    Primitive.DOUBLE: pa.float64(), Primitive.DATE: pa.date32(),
    Primitive.TIMESTAMP: pa.timestamp("us"), Primitive.TIMESTAMPTZ: pa.timestamp("us", "UTC"),
    Primitive.BOOLEAN: pa.bool_(), Primitive.STRING: pa.string(), Primitive.UUID: pa.string(),
    Primitive.BINARY: pa.binary(),
}  # fmt: skip

Key = tuple["Scalar", ...]
Hash = tuple[int, int]


@contextmanager
def settings(spark: SparkSession, *, zone: str, ansi: str) -> Iterator[None]:
    wanted = {"spark.sql.session.timeZone": zone, "spark.sql.ansi.enabled": ansi}
    before = {name: spark.conf.get(name) for name in wanted}
    try:
        for name, value in wanted.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            spark.conf.set(name, str(old))


def arrow_type(type_: Scalar) -> pa.DataType:
    match type_:
        case Decimal(precision, scale):
            return pa.decimal128(precision, scale)
        case Fixed():
            return pa.binary()
        case _:
            return ARROW[type_]


def column(values: Sequence[object], type_: Scalar) -> pa.Array:
    plain = [str(each) if isinstance(each, uuid.UUID) else each for each in values]
    return pa.array(plain, arrow_type(type_))


def frame_of(spark: SparkSession, table: pa.Table) -> DataFrame:
    # Left to itself, Spark takes timestamps without a zone for times in the session's.
    schema = StructType(
        [
            StructField(each.name, from_arrow_type(each.type, prefer_timestamp_ntz=True))
            for each in table.schema
        ]
    )
    return spark.createDataFrame(table, schema)


def hashed(frame: DataFrame, keys: Mapping[Key, Sequence[str]]) -> dict[Key, list[Hash | None]]:
    """Every key's hash in every row, out of one job; None where there is no hash."""
    halves: list[Column] = []
    for number, (types, names) in enumerate(keys.items()):
        hi, lo = key_hash_columns([*zip(map(sf.col, names), types, strict=True)])
        halves += [hi.alias(f"hi{number}"), lo.alias(f"lo{number}")]
    found = frame.select(*halves).toArrow()
    assert set(found.schema.types) == {pa.int64()}
    return {
        types: [
            None if hi is None else (hi % 2**64, lo % 2**64)
            for hi, lo in zip(
                found[f"hi{number}"].to_pylist(), found[f"lo{number}"].to_pylist(), strict=True
            )
        ]
        for number, types in enumerate(keys)
    }


@pytest.mark.parametrize(("zone", "ansi"), SESSIONS)
def test_spark_gives_the_golden_hashes(spark: SparkSession, zone: str, ansi: str) -> None:
    golden = golden_keys()
    # A row for each key, with nulls in the columns of all others.
    columns: dict[str, pa.Array] = {}
    keys: dict[Key, list[str]] = {}
    for types in dict.fromkeys(key.types for key in golden):
        keys[types] = []
        for at, type_ in enumerate(types):
            name = f"c{len(columns)}"
            values = [key.values[at] if key.types == types else None for key in golden]
            columns[name] = column(values, type_)
            keys[types].append(name)
    with settings(spark, zone=zone, ansi=ansi):
        found = hashed(frame_of(spark, pa.table(columns)), keys)
    for types, hashes in found.items():
        for key, got in zip(golden, hashes, strict=True):
            expected = (key.hi, key.lo) if key.types == types else None
            assert got == expected, (str(key), types)


def draw(type_: Scalar, chance: random.Random) -> object:
    match type_:
        case Decimal(precision, scale):
            digits = chance.randrange(10 ** chance.randint(1, precision))
            return Number(f"{chance.choice('+-')}{digits}E-{scale}")
        case Fixed(length):
            return chance.randbytes(length)
        case _:
            return DRAWS[type_](chance)


def draw_double(chance: random.Random) -> float:
    if chance.random() < 0.1:
        return chance.choice((0.0, -0.0, math.nan, math.inf, -math.inf, 1.0, 5e-324))
    number: float = struct.unpack(">d", chance.randbytes(8))[0]
    return number


def draw_float(chance: random.Random) -> float:
    number: float = struct.unpack(">f", chance.randbytes(4))[0]
    return number


def draw_text(chance: random.Random) -> str:
    return "".join(chance.choice("aZ09 -'\0é日😀") for _ in range(chance.randrange(300)))


def draw_moment(chance: random.Random) -> datetime:
    first, last = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)
    return first + timedelta(
        microseconds=chance.randrange((last - first) // timedelta(microseconds=1))
    )


DRAWS: Mapping[Primitive, Callable[[random.Random], object]] = {
    Primitive.INT: lambda chance: chance.randrange(-(2**31), 2**31),
    Primitive.LONG: lambda chance: chance.randrange(-(2**63), 2**63) >> chance.randrange(64),
    Primitive.FLOAT: draw_float,
    Primitive.DOUBLE: draw_double,
    Primitive.DATE: lambda chance: date.fromordinal(chance.randrange(1, 3_652_060)),
    Primitive.TIMESTAMP: lambda chance: draw_moment(chance).replace(tzinfo=None),
    Primitive.TIMESTAMPTZ: draw_moment,
    Primitive.BOOLEAN: lambda chance: chance.random() < 0.5,
    Primitive.STRING: draw_text,
    Primitive.UUID: lambda chance: uuid.UUID(bytes=chance.randbytes(16)),
    Primitive.BINARY: lambda chance: chance.randbytes(chance.randrange(300)),
}
SINGLE: tuple[Scalar, ...] = (
    *DRAWS, Fixed(7), Decimal(9, 2), Decimal(18, 0), Decimal(38, 0), Decimal(38, 10),
    Decimal(38, 38),
)  # fmt: skip
COMPOSITE: tuple[Key, ...] = (
    (Primitive.INT, Primitive.LONG),
    (Primitive.STRING, Primitive.BINARY),
    (Primitive.UUID, Primitive.STRING, Primitive.DATE),
    (
        Primitive.TIMESTAMP,
        Primitive.TIMESTAMPTZ,
        Primitive.BOOLEAN,
        Primitive.DOUBLE,
        Decimal(9, 2),
    ),
)


@pytest.mark.fault("T4")
@pytest.mark.parametrize(("zone", "ansi"), SESSIONS[1:3])
def test_spark_hashes_any_key_as_specified(spark: SparkSession, zone: str, ansi: str) -> None:
    chance = random.Random(SEED)  # noqa: S311 - repeatable on purpose
    values = {type_: [draw(type_, chance) for _ in range(ROWS)] for type_ in SINGLE}
    names = {type_: f"c{number}" for number, type_ in enumerate(SINGLE)}
    table = pa.table({names[type_]: column(values[type_], type_) for type_ in SINGLE})
    keys = {
        types: [names[each] for each in types]
        for types in (*((each,) for each in SINGLE), *COMPOSITE)
    }
    with settings(spark, zone=zone, ansi=ansi):
        found = hashed(frame_of(spark, table), keys)
    for types, hashes in found.items():
        rows = zip(*(values[each] for each in types), strict=True)
        assert hashes == [hash_key(row, types) for row in rows], types


def test_a_timestamp_is_hashed_at_either_end_of_its_range(spark: SparkSession) -> None:
    # Beyond what Python's own timestamps can be, in 10,000 and before the year 1 among them.
    micros = [-(2**63), -(2**63) + 1, -62135596800000001, 253402300800000000, 2**63 - 2, 2**63 - 1]
    table = pa.table({"long": pa.array(micros), "one": pa.array([1] * len(micros), pa.int32())})
    for name, type_ in (("local", Primitive.TIMESTAMP), ("moment", Primitive.TIMESTAMPTZ)):
        table = table.append_column(name, table["long"].cast(ARROW[type_]))
    one = Primitive.INT
    keys: dict[Key, list[str]] = {
        (Primitive.TIMESTAMP,): ["local"],
        (Primitive.TIMESTAMPTZ,): ["moment"],
        (Primitive.TIMESTAMP, one): ["local", "one"],
        (Primitive.TIMESTAMPTZ, one): ["moment", "one"],
    }
    with settings(spark, zone="America/New_York", ansi="true"):
        found = hashed(frame_of(spark, table), keys)
    tagged = [b"t" + encode_key([each], [Primitive.LONG])[1:] for each in micros]
    digests = [hashlib.sha256(each + encode_key([1], [one])).digest() for each in tagged]
    for types, hashes in found.items():
        assert hashes == (
            [(xxh64_of_long(each), 0) for each in micros]
            if len(types) == 1
            else [struct.unpack_from(">QQ", each) for each in digests]
        )


def test_a_uuid_has_one_hash_as_text_and_as_bytes(spark: SparkSession) -> None:
    uuids = [uuid.UUID(int=0), uuid.UUID(int=2**128 - 1), *(uuid.uuid4() for _ in range(50))]
    texts = pa.table(
        {"text": column(uuids, Primitive.UUID), "bytes": [each.bytes for each in uuids]}
    )
    frame = frame_of(spark, texts)
    for more in ([], [(sf.lit("x"), Primitive.STRING)]):
        as_text = key_hash_columns([(sf.col("text"), Primitive.UUID), *more])
        as_bytes = key_hash_columns(
            [(sf.col("bytes"), Primitive.UUID), *more], uuids=UuidForm.BYTES
        )
        rows = frame.select(*as_text, *as_bytes).collect()
        expected = [
            hash_key([each, *("x" for _ in more)], [Primitive.UUID, *(type_ for _, type_ in more)])
            for each in uuids
        ]
        assert [(row[0] % 2**64, row[1] % 2**64) for row in rows] == expected
        assert [(row[2], row[3]) for row in rows] == [(row[0], row[1]) for row in rows]


@pytest.mark.fault("N11", "T5")
def test_uuids_crafted_to_share_a_64_bit_hash_do_not_share_the_key_hash(
    spark: SparkSession,
) -> None:
    """Spark hashes several columns one into the other, and the last can be made to fit."""
    first, other, last = 0x0190163D8694739B, 0x0190163D8694739C, 0x2EA5966C26F8AD91
    fitting = lane_of(last) ^ seeded(xxh64_of_long(first)) ^ seeded(xxh64_of_long(other))
    crafted = [(first, last), (other, long_of_lane(fitting))]
    uuids = [uuid.UUID(int=upper << 64 | lower) for upper, lower in crafted]
    halves = [struct.unpack(">qq", each.bytes) for each in uuids]
    frame = frame_of(
        spark,
        pa.table(
            {
                "key": column(uuids, Primitive.UUID),
                "a": [a for a, _ in halves],
                "b": [b for _, b in halves],
            }
        ),
    )
    hi, lo = key_hash_columns([(sf.col("key"), Primitive.UUID)])
    one, two = frame.select(
        sf.xxhash64("a", "b").alias("chained"), hi.alias("hi"), lo.alias("lo")
    ).collect()
    assert one["chained"] == two["chained"]
    assert one["hi"] != two["hi"]
    assert one["lo"] != two["lo"]


def test_a_null_in_any_column_of_the_key_leaves_no_hash(spark: SparkSession) -> None:
    names = {type_: f"c{number}" for number, type_ in enumerate(SINGLE)}
    table = pa.table({names[type_]: column([None], type_) for type_ in SINGLE})
    keys: dict[Key, list[str]] = {(type_,): [names[type_]] for type_ in SINGLE}
    keys |= {(Primitive.BOOLEAN, type_): ["there", names[type_]] for type_ in SINGLE}
    frame = frame_of(spark, table).withColumn("there", sf.lit(True))  # noqa: FBT003
    assert set(map(tuple, hashed(frame, keys).values())) == {(None,)}


def test_a_single_long_that_is_never_null_is_hashed_by_one_function(spark: SparkSession) -> None:
    hi, lo = key_hash_columns([(sf.col("id"), Primitive.LONG)])
    plan = (
        spark.range(5).select(hi.alias("hi"), lo.alias("lo"))._jdf.queryExecution().optimizedPlan()
    )
    assert "Project [xxhash64(id#" in str(plan)
    assert "isnotnull" not in str(plan)


def test_columns_that_cannot_be_a_key_are_refused(spark: SparkSession) -> None:
    assert spark is not None
    with pytest.raises(UnsupportedSchemaChangeError, match="time"):
        key_hash_columns([(sf.col("id"), Primitive.TIME)])
