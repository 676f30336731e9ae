"""Copy and stream while others write, in processes that are killed: every change once."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from tests.support.captured import captured_database
from tests.support.ingest_processes import SlotWatch, kill_all, plan_kills
from tests.support.living_tables import KEYS, LivingDatabase, check_changelog

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.demo.services import Postgres

# A JVM for each process, on a machine that may be busy.
pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.timeout(900)]

KILLS = 5


def test_every_change_is_captured_once_whenever_the_process_dies(
    spark: SparkSession, postgres: Postgres, tmp_path: Path
) -> None:
    seed = int(os.environ.get("FRAZIL_SEED", time.time_ns() % 2**32))
    print(f"FRAZIL_SEED={seed}")  # noqa: T201
    with captured_database(
        spark,
        postgres,
        tmp_path,
        source={"heartbeat": "1s"},
        ingest={"interval": "200ms"},
        telemetry={"listen": "127.0.0.1:0"},
    ) as world:
        world.reconfigure(spark={"master": "local[2]", "conf": {"spark.driver.memory": "512m"}})
        living = LivingDatabase.create(world.database, seed=seed, rows=300, pause=0.01)
        document = tmp_path / f"{world.document['pipeline']}.yaml"
        with SlotWatch(world) as watch:
            with living:
                ends = kill_all(document, plan_kills(KILLS, seed=seed))
            print("; ".join(ends))  # noqa: T201
            world.catch_up()
        assert watch.looks > KILLS
        for name, table in living.tables.items():
            check_changelog(world.changelog_rows(name), table)
        world.assert_mirrored(*(name for name in KEYS if KEYS[name]))
