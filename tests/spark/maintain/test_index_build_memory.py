"""The index of a large mirror is built by workers that could not hold all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from frazil.errors import WriteFailedError
from frazil.mirror.index import run_building
from tests.support.lake.sql_changelogs import SqlChangelog, sql_changelog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

__all__ = ["sql_changelog"]

pytestmark = [pytest.mark.spark, pytest.mark.deep, pytest.mark.timeout(0)]

KEYS = 16_000_000
# Of addresses, enforced by the kernel; half of them are libraries and what allocators reserve.
WORKER_MIB = 2048
# What Spark tells a new worker to limit itself to; jobs of this thread have it.
MEMORY_PROPERTY = "resource.pyspark.memory"


@pytest.fixture
def _small_workers(spark: SparkSession) -> Iterator[None]:
    spark.sparkContext.setLocalProperty(MEMORY_PROPERTY, str(WORKER_MIB))
    yield
    none: str = None  # type: ignore[assignment]
    spark.sparkContext.setLocalProperty(MEMORY_PROPERTY, none)


@pytest.mark.fault("X10")
@pytest.mark.usefixtures("_small_workers")
def test_a_large_index_is_built_by_workers_with_little_memory(
    spark: SparkSession,
    sql_changelog: Callable[..., SqlChangelog],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = sql_changelog("id bigint, v string, op string, seq bigint")
    table.write("(0, 'first', 'I', 1)")
    table.merge()
    # Another engine wrote most of it, so that there is no index of it yet.
    spark.range(1, KEYS).selectExpr("id", "'x' as v").writeTo(table.mirror).append()
    table.write(f"({KEYS - 1}, 'changed', 'U', 2)")

    with monkeypatch.context() as patch:
        # All of it in one bucket: what the bound is there for.
        patch.setattr(run_building, "plan_bits", lambda _entries: 0)
        with pytest.raises(WriteFailedError) as caught:
            table.merge()
        assert caught.value.lacked_memory

    (commit,) = table.merge().commits
    (repair,) = commit.repairs
    print(f"{KEYS:,} keys, {repair}")  # noqa: T201
    counted = f"v, count(*) from {table.mirror} group by v --"
    assert table.rows(counted) == [
        ("changed", 1),
        ("first", 1),
        ("x", KEYS - 2),
    ]
