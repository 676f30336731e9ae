"""Capture from a physical standby: slot, copy and stream there, the publication on the primary."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from frazil.errors import PermissionError  # noqa: A004 - the published name of this error
from frazil.ledger.table_state import Copying, Streaming
from tests.support.ingest.captured import captured_database
from tests.support.postgres.standby import let_it_follow, logging_transactions, primary_and_standby

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.demo.services import Postgres
    from tests.support.ingest.captured import CapturedDatabase

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.fault("N41")]


def _let_it_follow(db: CapturedDatabase, standby: Postgres) -> None:
    let_it_follow(standby, str(db.ask("select pg_current_wal_flush_lsn()::text")))


def test_a_standby_is_captured_like_any_server(spark: SparkSession, shared_folder: Path) -> None:
    with (
        primary_and_standby(shared_folder) as (primary, standby),
        captured_database(spark, primary, shared_folder) as db,
        logging_transactions(primary),
    ):
        publication = f"{db.config.pipeline}_frazil"
        dsn = db.database.dsn_of(primary.user, primary.password, port=standby.port).value
        db.reconfigure(source={"dsn": dsn})
        db.run(
            "create table users (id int primary key, name text)",
            "create table late (id int primary key)",
            "insert into users values (1, 'x'), (2, 'y')",
        )
        _let_it_follow(db, standby)
        with pytest.raises(PermissionError, match="does not exist, and the server is a standby"):
            db.ingest()
        db.run(
            f"create publication {publication} for table only users"
            " with (publish_via_partition_root = true)"
        )
        _let_it_follow(db, standby)
        db.ingest()
        states = db.states()
        assert states["users"] == Streaming()
        assert isinstance(states["late"], Copying)
        assert "add it on the primary" in str(states["late"].cause)
        db.run(
            "insert into users values (3, 'z')",
            "update users set name = 'changed' where id = 1",
            "delete from users where id = 2",
            f"alter publication {publication} add table only late",
            "insert into late values (1)",
        )
        _let_it_follow(db, standby)
        db.catch_up()
        db.assert_mirrored("users", "late")
        with psycopg.connect(standby.dsn, autocommit=True) as connection:
            connection.execute(
                "select pg_drop_replication_slot(slot_name) from pg_replication_slots"
            )
