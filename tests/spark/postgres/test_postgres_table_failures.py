"""A table that cannot be published or copied is its own problem, and enters once it can."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from frazil.ledger.table_state import Copying, Streaming
from frazil.pipeline.loops.loop import Ending
from tests.support.ingest.captured import captured_database

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.demo.services import Postgres
    from tests.support.ingest.captured import CapturedDatabase

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.fault("N40", "N42", "N43")]

_TABLES = (
    "create table mine (id int primary key, a text)",
    "create table theirs (id int primary key, a text)",
    "create table unlogged (id int primary key)",
    "alter table unlogged set unlogged",
    "create table hidden (id int primary key)",
    "create table parent (id int primary key, a text)",
    "create table child (primary key (id)) inherits (parent)",
    "create table stepchild (primary key (id)) inherits (parent)",
    "create view seen as select id from mine",
    "insert into mine values (1, 'x')",
    "insert into theirs values (1, 'x')",
    "insert into parent values (1, 'own')",
    "insert into child values (2, 'of the child')",
    "insert into stepchild values (3, 'of the other')",
)
_OURS = ("mine", "unlogged", "parent", "child", "hidden")


@pytest.fixture
def db(spark: SparkSession, postgres: Postgres, tmp_path: Path) -> Iterator[CapturedDatabase]:
    """Captured by a role that owns some of the tables, and may read some."""
    opened: AbstractContextManager[CapturedDatabase] = captured_database(spark, postgres, tmp_path)
    with opened as db:
        role = _role(db)
        db.run(
            f"create role {role} login replication password 'secret'",
            f"grant create on database {db.database.name} to {role}",
            f"grant all on schema public to {role}",
            *_TABLES,
            *(f"alter table {each} owner to {role}" for each in _OURS),
            f"revoke all on hidden from {role}",
            f"grant select on theirs to {role}",
        )
        dsn = db.database.dsn_of(role, "secret").value
        db.reconfigure(source={"dsn": dsn, "tables": ["public.*", "public.seen"]})
        try:
            yield db
        finally:
            db.run(f"drop owned by {role} cascade", f"drop role {role}")


def _role(db: CapturedDatabase) -> str:
    return f"part_{db.database.name}"


def _reasons(db: CapturedDatabase) -> dict[str, str]:
    """Tables that wait, and why."""
    return {
        name: str(state)
        for name, state in db.states().items()
        if isinstance(state, Copying) and state.cause is not None
    }


def test_what_may_not_be_captured_waits_until_it_may_and_the_others_go_on(
    db: CapturedDatabase,
) -> None:
    publication, role = f"{db.config.pipeline}_frazil", _role(db)
    db.catch_up()
    assert (db.failures, db.ending) == ([], Ending.ACTION_REQUIRED)
    assert {name for name, state in db.states().items() if state == Streaming()} == {
        "mine",
        "parent",
        "child",
    }
    reasons = _reasons(db)
    assert set(reasons) == {"theirs", "unlogged", "hidden", "stepchild", "seen"}
    add = f'alter publication "{publication}" add table only "public"."theirs";'
    assert f"the role {role} does not own the table" in reasons["theirs"]
    assert add in reasons["theirs"]
    assert "is unlogged" in reasons["unlogged"]
    assert "may not read public.hidden" in reasons["hidden"]
    assert "is a view" in reasons["seen"]
    db.assert_mirrored("mine", "parent", "child")

    with db.running() as take:
        # A table that turns up while it runs.
        confirmed = db.confirmed()
        db.run(
            "create table late (id int primary key)",
            'create table "Mine" (id int primary key)',
            "create table mine_changelog (id int primary key)",
            *(f"alter table {each} owner to {role}" for each in ('"Mine"', "mine_changelog")),
            "insert into mine values (2, 'y')",
        )
        take()
        reasons = _reasons(db)
        assert "does not own the table" in reasons["late"]
        assert "and is the changelog of public.mine." in reasons["Mine"]
        assert "tables: [{source: public.Mine, mirror: " in reasons["Mine"]
        assert "and is the changelog of public.mine." in reasons["mine_changelog"]
        assert (db.confirmed() or 0) > (confirmed or 0)
        # An operator follows the advice; the pipeline is not notified.
        db.run(
            add,
            "alter table unlogged set logged",
            f"grant select on hidden to {role}",
            f"alter table stepchild owner to {role}",
            "insert into mine values (3, 'z')",
        )
        take()
        assert set(_reasons(db)) == {"late", "seen", "Mine", "mine_changelog"}
        states = db.states()
        assert {states[each] for each in ("theirs", "unlogged", "hidden", "stepchild")} == {
            Copying()
        }
    db.run("insert into stepchild values (4, 'of the other')", "insert into theirs values (2, 'y')")
    db.run("insert into mine values (4, 'z')", 'insert into "Mine" values (1)')
    renamed = {"source": "public.Mine", "mirror": "public.upper", "changelog": "public.upper_log"}
    db.reconfigure(tables=[renamed])
    db.catch_up()
    assert set(_reasons(db)) == {"late", "seen", "mine_changelog"}
    db.assert_mirrored("Mine")
    db.assert_mirrored("mine", "parent", "child", "theirs", "unlogged", "hidden", "stepchild")


def test_a_publication_that_others_manage_lacks_a_table_and_the_others_go_on(
    db: CapturedDatabase,
) -> None:
    publication = f"{db.config.pipeline}_frazil"
    db.reconfigure(source={"tables": ["public.*"], "publication": {"create": False}})
    db.run(f"create publication {publication} with (publish_via_partition_root = true)")
    with db.running() as take:
        # There is nothing to stream, and tables are checked nevertheless.
        take()
        assert "source.publication.create is false" in _reasons(db)["theirs"]
        db.run(f"alter publication {publication} add table only theirs")
        take()
        assert db.states()["theirs"] == Copying()
    db.catch_up()
    assert (db.failures, db.ending) == ([], Ending.ACTION_REQUIRED)
    assert db.states()["theirs"] == Streaming()
    assert "source.publication.create is false" in _reasons(db)["mine"]
    # Removed again by its owner: that table requires a resync, the other one begins.
    db.run(f"alter publication {publication} set table only mine")
    db.catch_up()
    states = db.states()
    assert (states["mine"], db.failures) == (Streaming(), [])
    assert "left the publication" in str(states["theirs"])
    db.assert_mirrored("mine")
