"""Tables of which something was silently not sent require a resync, which repairs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from frazil.ledger.table_state import Gone, ResyncRequired, Streaming
from tests.support.ingest.captured import captured_database

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.demo.services import Postgres

pytestmark = [pytest.mark.spark, pytest.mark.services]

LOST = ("gone", "flipped", "rekeyed")
TABLES = (*LOST, "kept")


@pytest.mark.fault("N35", "N36", "N37", "N38")
def test_a_table_that_missed_something_is_read_again_and_no_other_is(
    spark: SparkSession, postgres: Postgres, tmp_path: Path
) -> None:
    keys = [{"mirror": "public.unproven", "key": ["code"]}]
    with captured_database(spark, postgres, tmp_path, tables=keys) as world:
        publication = f"{world.document['pipeline']}_frazil"
        world.run(
            *(f"create table {each} (id int primary key, body text)" for each in TABLES),
            *(f"insert into {each} values (1, 'a'), (2, 'b')" for each in TABLES),
            "alter table rekeyed replica identity full",
            "create table unproven (code int not null, body text)",
            "alter table unproven replica identity full",
            "insert into unproven values (1, 'a'), (1, 'b')",
            f"create publication {publication} for all tables "
            "with (publish_via_partition_root = true)",
        )
        world.catch_up()
        world.assert_mirrored(*TABLES)
        # One of two rows would be shown by a mirror, and either is wrong.
        assert not world.has_mirror("unproven")
        assert len(world.changes("unproven")) == 2
        world.run(
            "alter table gone set unlogged",
            "delete from gone where id = 1",
            "alter table flipped set unlogged",
            "delete from flipped where id = 1",
            "alter table flipped set logged",
            "alter table rekeyed drop constraint rekeyed_pkey",
            "insert into rekeyed values (1, 'twice')",
            "delete from rekeyed where body = 'twice'",
            "alter table rekeyed add primary key (id)",
            "reindex table concurrently kept",
            "insert into kept values (3, 'c')",
        )
        world.ingest()
        assert isinstance(world.states()["gone"], Gone)
        world.run("alter table gone set logged", "insert into gone values (4, 'd')")
        world.ingest()
        states = world.states()
        assert {type(states[each]) for each in LOST} == {ResyncRequired}
        assert {type(states[each]) for each in ("kept", "unproven")} == {Streaming}
        world.resync(*LOST)
        world.catch_up()
        world.assert_mirrored(*TABLES)
        world.run(
            f"alter publication {publication} set (publish = 'insert')",
            *(f"delete from {each} where id = 2" for each in TABLES),
            f"alter publication {publication} set (publish = 'insert, update, delete, truncate')",
        )
        world.ingest()
        assert {type(each) for each in world.states().values()} == {ResyncRequired}
        world.resync()
        world.catch_up()
        world.assert_mirrored(*TABLES)
