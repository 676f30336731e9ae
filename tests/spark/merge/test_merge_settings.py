"""The settings of a caller's session, and the zone of the driver, change nothing of a merge."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal as DecimalValue
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from pyspark.sql import functions as sf

from frazil.clients.iceberg.lake import Lake
from frazil.clients.spark.pinned_session import pinned_session
from frazil.merge.reading.range_preparation import sequence_literal
from frazil.model.schema.types import Decimal, Primitive
from tests.support.lake.catalogs import Kind
from tests.support.merge.histories import make_history
from tests.support.merge.hostile_sessions import (
    HOSTILE,
    driver_in,
    hostile_session,
    turned_switches,
)
from tests.support.merge.world import World
from tests.support.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.merge.planning.changes import SequenceValue
    from tests.support.lake.catalogs import LakeCase

pytestmark = [pytest.mark.spark, pytest.mark.fault("N27")]

# Histories with a TRUNCATE after the first merge: both orders, hard and soft deletes, one task and
# several, keys that have a zone and keys that have none.
HISTORIES = (
    (18, "timestamp", "Tokyo"),
    (168, "timestamptz", "Tokyo"),
    (168, "timestamp", "New York"),
    (267, "timestamptz", "Tokyo"),
    (137, "timestamptz", "New York"),
    (22, "timestamp", "Tokyo"),
)
CI_HISTORIES = (HISTORIES[0], HISTORIES[2], HISTORIES[3])
_YEAR_ONE = -62_135_596_800_000_000
_YEAR_12000 = 316_516_204_800_000_001


@pytest.mark.parametrize(
    "case", sampled(HISTORIES, ci=CI_HISTORIES), ids=lambda case: "-".join(map(str, case))
)
def test_a_history_leaves_the_same_rows_in_every_session(
    case: tuple[int, str, str],
    spark: SparkSession,
    lake_of: Callable[[Kind], LakeCase],
    tmp_path: Path,
) -> None:
    seed, sequence, settings = case
    catalog = lake_of(Kind.SQLITE_FILE).catalog
    session = hostile_session(spark, HOSTILE[settings])
    before = session.conf.getAll
    history = replace(make_history(seed), sequence=sequence)
    with driver_in(spark, HOSTILE[settings]["spark.sql.session.timeZone"]):
        lake = Lake(session, catalog)
        name = f"t_{uuid4().hex[:12]}"
        world = World(session, lake, catalog, history, tmp_path, name, others=spark)
        world.run()
    assert session.conf.getAll == before


@pytest.mark.parametrize("settings", HOSTILE)
@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (Primitive.TIMESTAMP, 1_767_225_600_000_001),
        (Primitive.TIMESTAMP, _YEAR_ONE),
        (Primitive.TIMESTAMP, _YEAR_12000),
        (Primitive.TIMESTAMPTZ, 1_767_225_600_000_001),
        (Primitive.TIMESTAMPTZ, _YEAR_ONE),
        (Primitive.TIMESTAMPTZ, _YEAR_12000),
        (Primitive.LONG, 2**62),
        (Primitive.STRING, "0000/it's"),
        (Decimal(20, 0), DecimalValue(10**19)),
    ],
)
def test_a_literal_is_the_value_it_was_made_from(
    type_: Primitive | Decimal, value: SequenceValue, settings: str, spark: SparkSession
) -> None:
    session = pinned_session(hostile_session(spark, HOSTILE[settings]))
    made = session.range(1).select(sequence_literal(value, type_).alias("made"))
    (column,) = made.toArrow().columns
    assert made.schema["made"].dataType.simpleString() == {
        Primitive.TIMESTAMP: "timestamp_ntz",
        Primitive.TIMESTAMPTZ: "timestamp",
        Primitive.LONG: "bigint",
        Primitive.STRING: "string",
    }.get(type_, "decimal(20,0)")  # type: ignore[arg-type]
    is_instant = type_ in {Primitive.TIMESTAMP, Primitive.TIMESTAMPTZ}
    found = column.cast("int64") if is_instant else column
    assert found[0].as_py() == value


def test_the_caller_keeps_its_session_and_its_active_session(
    spark: SparkSession, lake_of: Callable[[Kind], LakeCase]
) -> None:
    case = lake_of(Kind.SQLITE_FILE)
    session = hostile_session(spark, HOSTILE["Tokyo"])
    classes = spark._jsparkSession
    active = classes.getActiveSession()
    Lake(session, case.catalog)
    assert classes.getActiveSession().equals(active)
    pinned = pinned_session(session)
    assert pinned is pinned_session(session)
    assert pinned is pinned_session(pinned)
    assert pinned.conf.get("spark.sql.session.timeZone") == "UTC"
    assert session.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    assert pinned.conf.get("spark.sql.shuffle.partitions") == "7"
    assert pinned.conf.get("spark.wap.branch", None) is None


def test_no_switch_of_a_session_reaches_our_work(spark: SparkSession) -> None:
    session = hostile_session(spark, HOSTILE["New York"])
    reached = pinned_session(session).conf.getAll.keys() & turned_switches(spark).keys()
    kept = {"spark.sql.adaptive.enabled", "spark.sql.ansi.enabled", "spark.sql.caseSensitive"}
    fixed = {each for each in reached if not session.conf.isModifiable(each)}
    assert reached - fixed <= kept


def test_a_caller_reads_what_was_just_merged_in_its_own_session(
    spark: SparkSession, lake_of: Callable[[Kind], LakeCase], tmp_path: Path
) -> None:
    case = lake_of(Kind.SQLITE_FILE)
    session = spark.newSession()
    for key, value in spark.conf.getAll.items():
        if key.startswith("spark.sql.catalog."):
            session.conf.set(key, value)
    world = World(
        session,
        Lake(session, case.catalog),
        case.catalog,
        make_history(0),
        tmp_path,
        f"t_{uuid4().hex[:12]}",
        others=spark,
    )
    seen = []
    for step in world.history.steps:
        world.perform(step)
        if world.position is not None:
            found = session.table(world.mirror_name.quoted).agg(sf.count("*")).first()
            assert found is not None
            assert found[0] == len(world.replay.rows)
            seen.append(found[0])
    assert len(set(seen)) > 1
