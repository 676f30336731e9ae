"""Tables that are made, dropped, renamed, published otherwise or read again, one pipeline for all.

The pipeline runs four times, and every run is a process of its own to the pipeline. What a test
names was done before it runs; ``seen`` has what was there in between.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from frazil.ledger.table_state import Gone, Paused, ResyncRequired, Streaming
from tests.support.ingest.captured import captured_database

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from frazil.demo.services import Postgres
    from tests.support.ingest.captured import CapturedDatabase

pytestmark = [pytest.mark.spark, pytest.mark.services]

# Longer than what Postgres keeps in the row itself.
_LARGE = 9000

_PLAIN = (
    "steady",
    "recreated",
    "left_and_came",
    "taken_out",
    "filtered",
    "renamed_away",
    "read_again",
    "left_out",
)
_REPLACED = {
    "recreated": "it was dropped and created again, or another table took its name",
    "left_and_came": "it left the publication and entered it again",
    "taken_out": "it left the publication and entered it again",
    "filtered": "it left the publication and entered it again, and its row filter changed",
}


@dataclass
class Lived:
    """The database at the end, and what was seen on the way."""

    db: CapturedDatabase
    seen: dict[str, Any] = field(default_factory=dict)

    def remember(self, when: str) -> None:
        """Remember the tables' states."""
        self.seen[when] = self.db.states()


def _snapshots(db: CapturedDatabase, table: str) -> int:
    name = f"{db.config.catalog.name}.public.{table}"
    db.spark.sql(f"refresh table {name}")
    return db.spark.sql(f"select * from {name}.snapshots").count()


def _begin(db: CapturedDatabase) -> None:
    for table in _PLAIN:
        db.run(
            f"create table {table} (id int primary key, a text)",
            f"insert into {table} values (1, 'x'), (2, 'y')",
        )
    db.run(
        "create table toasted (id int primary key, body text, n int)",
        "alter table toasted alter body set storage external",
        f"insert into toasted select i, repeat('b', {_LARGE}) || i, 0 from generate_series(1, 3) i",
        "create table accepted (id int primary key, n int)",
        "insert into accepted values (1, 1)",
        "create table stopped (id int primary key, n int)",
        "insert into stopped values (1, 1)",
    )

    def meanwhile() -> None:
        db.run(
            "create table latecomer (id int primary key, a text)",
            "insert into latecomer values (1, 'x')",
            "insert into steady values (3, 'meanwhile')",
        )

    db.ingest(changes_meanwhile=meanwhile)
    db.merge()


def _change(lived: Lived) -> None:
    """Everything that no message announces; nothing of it is merged yet."""
    db, seen = lived.db, lived.seen
    publication = f"{db.config.pipeline}_frazil"
    db.run(
        "insert into recreated values (3, 'of the old one')",
        "drop table recreated",
        "create table recreated (id int primary key, other numeric(4, 1))",
        "insert into recreated values (1, 1.5), (7, 7.5)",
        f"alter publication {publication} drop table left_and_came, taken_out, filtered",
        "insert into left_and_came values (3, 'while it was away')",
        "delete from taken_out where id = 1",
        f"alter publication {publication} add table left_and_came",
        f"alter publication {publication} add table filtered where (id > 1)",
        "insert into filtered values (3, 'z')",
        "alter table renamed_away rename to renamed_to",
        "insert into renamed_to values (3, 'under another name')",
        "update steady set a = 'changed' where id = 1",
        "update toasted set n = 1 where id = 1",
        "update read_again set a = 'changed' where id = 1",
        "alter table accepted alter n type bigint",
        "insert into accepted values (2, 9223372036854775807)",
        "insert into left_out values (3, 'never seen')",
    )
    db.resync("read_again")
    db.reconfigure(source={"exclude": ["public.left_out"], "on_widen": "accept"})
    seen["changelog snapshots"] = _snapshots(db, "read_again_changelog")
    db.ingest()
    lived.remember("changed")
    seen["published"] = {
        row["tablename"] for row in db.query("select tablename from pg_publication_tables")
    }
    seen["read again"] = db.mirror_rows("read_again")
    seen["replaced"] = {table: db.mirror_rows(table) for table in _REPLACED}
    seen["left out"] = db.changes("left_out")


def _repair(lived: Lived) -> None:
    db, seen = lived.db, lived.seen
    db.run(
        "alter table toasted rename body to story",
        "update toasted set n = 2 where id = 2",
        "alter table renamed_to rename to renamed_away",
        "insert into renamed_away values (4, 'back')",
        "alter table stopped alter n type bigint",
        "insert into stopped values (2, 2)",
        "delete from left_out where id = 1",
    )
    db.resync(*_REPLACED)
    db.reconfigure(source={"exclude": [], "on_widen": "stop"})
    seen["mirror snapshots"] = _snapshots(db, "read_again")
    db.catch_up()
    lived.remember("repaired")
    db.resync("stopped")
    db.catch_up()


@pytest.fixture(scope="module")
def lived(
    spark: SparkSession, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lived]:
    """All of it, in four runs."""
    with captured_database(spark, postgres, tmp_path_factory.mktemp("lived")) as db:
        lived = Lived(db)
        _begin(db)
        lived.remember("begun")
        _change(lived)
        _repair(lived)
        yield lived


@pytest.mark.parametrize(
    "table",
    ["steady", "latecomer", "toasted", "accepted", "stopped", "read_again", "left_out"],
)
def test_the_mirror_is_the_source_in_the_end(lived: Lived, table: str) -> None:
    assert lived.db.states()[table] == Streaming()
    lived.db.assert_mirrored(table)


def test_a_table_that_comes_while_the_pipeline_runs_is_read(lived: Lived) -> None:
    assert lived.seen["begun"]["latecomer"] == Streaming()
    assert [each.short for each in lived.db.changes("latecomer")] == [("READ", 1, "x")]


@pytest.mark.fault("N9")
@pytest.mark.parametrize("table", _REPLACED)
def test_a_table_that_is_not_what_it_was_waits_for_a_resync(lived: Lived, table: str) -> None:
    state = lived.seen["changed"][table]
    assert isinstance(state, ResyncRequired)
    assert state.reason == _REPLACED[table]
    # Readers have what was captured, until the table was read again.
    assert {row["id"] for row in lived.seen["replaced"][table]} == {1, 2}
    db = lived.db
    assert db.states()[table] == Streaming()
    where = "where id > 1" if table == "filtered" else ""
    db.assert_rows(table, db.query(f"select * from {table} {where}"))


def test_a_table_that_was_renamed_away_waits_until_it_is_back(lived: Lived) -> None:
    away = lived.seen["changed"]["renamed_away"]
    assert isinstance(away, Gone)
    assert lived.seen["changed"]["renamed_to"] == Streaming()
    assert lived.seen["repaired"]["renamed_away"] == Streaming()
    lived.db.assert_mirrored("renamed_away")
    added = [each.short for each in lived.db.changes("renamed_away") if each.operation == "INSERT"]
    assert added == [("INSERT", 3, "under another name"), ("INSERT", 4, "back")]
    gone = lived.seen["repaired"]["renamed_to"]
    assert isinstance(gone, Gone)


def test_reading_a_table_again_is_one_snapshot_and_readers_see_no_gap(lived: Lived) -> None:
    db, seen = lived.db, lived.seen
    changes = [each.short for each in db.changes("read_again")]
    assert changes[2:3] == [("TRUNCATE", None, None)]
    assert sorted(changes[3:]) == [("READ", 1, "changed"), ("READ", 2, "y")]
    assert _snapshots(db, "read_again_changelog") == seen["changelog snapshots"] + 1
    assert {row["a"] for row in seen["read again"]} == {"x", "y"}
    assert _snapshots(db, "read_again") == seen["mirror snapshots"] + 1


@pytest.mark.fault("N3")
def test_a_table_that_leaves_the_configuration_keeps_its_tables(lived: Lived) -> None:
    seen = lived.seen
    assert "left_out" not in seen["changed"]
    assert "left_out" not in seen["published"]
    assert [each.operation for each in seen["left out"]] == ["READ", "READ"]
    assert seen["repaired"]["left_out"] == Streaming()
    operations = [each.operation for each in lived.db.changes("left_out")]
    assert operations == ["READ", "READ", "TRUNCATE", "READ", "READ"]


@pytest.mark.fault("N7")
def test_what_was_not_sent_is_kept_though_its_column_was_renamed_before_the_merge(
    lived: Lived,
) -> None:
    rows = {row["id"]: (row["story"], row["n"]) for row in lived.db.mirror_rows("toasted")}
    assert rows[1] == ("b" * _LARGE + "1", 1)
    assert rows[2] == ("b" * _LARGE + "2", 2)
    assert [each.unchanged for each in lived.db.changes("toasted")][3:] == [("story",)] * 2


def test_a_widened_type_is_accepted_or_stops_its_table_as_configured(lived: Lived) -> None:
    assert lived.seen["changed"]["accepted"] == Streaming()
    assert [each.operation for each in lived.db.changes("accepted")] == ["READ", "INSERT"]
    stopped = lived.seen["repaired"]["stopped"]
    assert isinstance(stopped, Paused)
    assert "the type of n was widened, and on_widen is stop" in stopped.cause.reason
