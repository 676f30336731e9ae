"""Tables as wide and values as large as Postgres allows, and transactions that take their time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.ingest.captured import CapturedDatabase, captured_database

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.demo.services import Postgres

pytestmark = [pytest.mark.spark, pytest.mark.services]

# What Postgres allows, with the key; numbers of four bytes, so that a row fits in its page.
COLUMNS = 1600
MEGABYTE = 1024 * 1024


@pytest.fixture
def world(spark: SparkSession, postgres: Postgres, tmp_path: Path) -> Iterator[CapturedDatabase]:
    with captured_database(spark, postgres, tmp_path) as opened:
        yield opened


@pytest.mark.fault("T13")
def test_a_table_of_1600_columns_is_copied_streamed_and_merged(world: CapturedDatabase) -> None:
    names = [f"c{number}" for number in range(1, COLUMNS)]
    world.run(
        f"create table wide (id int primary key, {', '.join(f'{name} int' for name in names)})",
        f"insert into wide (id, {', '.join(names)}) select {', '.join(['i'] * COLUMNS)}"
        " from generate_series(1, 5) i",
    )
    world.catch_up()
    world.run(
        "update wide set c1 = -1, c1599 = null where id = 2",
        "delete from wide where id = 3",
        "insert into wide (id, c800) values (9, 9)",
    )
    world.catch_up()

    world.assert_mirrored("wide")


# The smaller one is more than a batch of ours and a page of Parquet hold; the larger one takes
# minutes on a busy machine.
@pytest.mark.fault("T13")
@pytest.mark.parametrize("megabytes", [40, pytest.param(255, marks=pytest.mark.deep)])
def test_a_large_value_is_copied_streamed_and_merged(
    world: CapturedDatabase, megabytes: int
) -> None:
    size = megabytes * MEGABYTE
    world.run(
        "create table large (id int primary key, body text)",
        f"insert into large values (1, repeat('c', {size}))",
    )
    world.catch_up()
    world.run(f"insert into large values (2, repeat('s', {size}))", "insert into large values (3)")
    world.catch_up()

    found = {row["id"]: row["body"] for row in world.mirror_rows("large")}
    assert found.keys() == {1, 2, 3}
    assert found[3] is None
    # Not the values themselves: a failure would print them.
    assert (len(found[1]), found[1].count("c")) == (size, size)
    assert (len(found[2]), found[2].count("s")) == (size, size)


@pytest.mark.fault("E8")
def test_what_was_prepared_before_a_restart_is_captured_when_it_commits_after_it(
    world: CapturedDatabase,
) -> None:
    name = world.database.name
    world.run("create table items (id int primary key, name text)")
    world.catch_up()
    world.run(
        f"begin; insert into items values (1, 'kept'); prepare transaction 'kept_{name}'",
        f"begin; insert into items values (2, 'gone'); prepare transaction 'gone_{name}'",
        "insert into items values (3, 'between')",
    )

    # Each ingest is a process of its own: what is prepared is no one's yet.
    world.catch_up()
    world.assert_rows("items", [{"id": 3, "name": "between"}])
    world.catch_up()
    world.run(f"rollback prepared 'gone_{name}'", "insert into items values (4, 'after')")
    world.catch_up()
    world.run(f"commit prepared 'kept_{name}'")
    world.catch_up()
    world.catch_up()

    world.assert_mirrored("items")
    assert [change.short for change in world.changes("items")] == [
        ("INSERT", 3, "between"),
        ("INSERT", 4, "after"),
        ("INSERT", 1, "kept"),
    ]
