"""Copy and stream while others write, in processes that are killed: every change once."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from tests.support.ingest.captured import captured_database
from tests.support.ingest.living_tables import LivingDatabase, check_changelog
from tests.support.ingest.processes import SlotWatch, kill_all, plan_kills
from tests.support.process.jvms import QUICK_JAVA
from tests.support.sampling import a_seed

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.demo.services import Postgres

# A JVM for each process, on a machine that may be busy.
pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.timeout(900)]

CONF = {"spark.driver.memory": "512m", "spark.driver.extraJavaOptions": QUICK_JAVA}
KILLS = 2
# Of each database; every other one is copied again while it is written to.
KILLS_OF_MANY = 10
MOST_KILLS = 200


def hand_over(
    spark: SparkSession, server: Postgres, folder: Path, *, seed: int, kills: int
) -> None:
    """Write, copy, stream and kill; then let all of it come in, and compare."""
    with captured_database(
        spark,
        server,
        folder,
        source={"heartbeat": "1s"},
        ingest={"interval": "200ms"},
        telemetry={"listen": "127.0.0.1:0"},
    ) as world:
        world.reconfigure(spark={"master": "local[2]", "conf": CONF})
        living = LivingDatabase.create(world.database, seed=seed, rows=300, pause=0.02)
        document = folder / f"{world.document['pipeline']}.yaml"
        planned = plan_kills(kills, seed=seed)
        with SlotWatch(world) as watch:
            with living:
                ends = kill_all(document, planned[: kills // 2])
                # Someone wants a table again, between two processes.
                world.resync("item")
                ends += kill_all(document, planned[kills // 2 :], first=kills // 2)
            print("; ".join(ends))  # noqa: T201
            world.catch_up()
        assert watch.checks > kills
        for name, table in living.tables.items():
            check_changelog(world.changelog_rows(name), table)
        world.assert_mirrored(*(name for name, table in living.tables.items() if table.key))


@pytest.mark.fault("K11", "K12")
def test_every_change_is_captured_once_whenever_the_process_dies(
    spark: SparkSession, postgres: Postgres, tmp_path: Path
) -> None:
    hand_over(spark, postgres, tmp_path, seed=a_seed(), kills=KILLS)


@pytest.mark.fault("K12")
@pytest.mark.deep
@pytest.mark.timeout(0)
def test_every_change_is_captured_once_however_often_the_process_dies(
    spark: SparkSession, postgres: Postgres, postgres_16: Postgres, tmp_path: Path
) -> None:
    seed = a_seed()
    end = time.monotonic() + float(os.environ.get("FRAZIL_DEEP_SECONDS", "600"))
    for done in range(0, MOST_KILLS, KILLS_OF_MANY):
        server = postgres_16 if done // KILLS_OF_MANY % 2 else postgres
        folder = tmp_path / str(done)
        folder.mkdir()
        hand_over(spark, server, folder, seed=seed + done, kills=KILLS_OF_MANY)
        if time.monotonic() > end:
            print(f"{done + KILLS_OF_MANY} kills in the time given")  # noqa: T201
            return
