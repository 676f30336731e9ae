"""What ``verify`` loads from a server: rows by key, and which tables a slot keeps changes of."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from frazil.clients.postgres.connecting import connect
from frazil.clients.postgres.replication import connect_replication
from frazil.errors import SlotBusyError, SourceUnavailableError
from frazil.hooks import SystemClock
from frazil.sources.postgres.copy.round import CopyRound
from frazil.sources.postgres.settings import PostgresSettings
from frazil.sources.postgres.spool_files import SpoolFiles
from frazil.sources.postgres.stream.pending_changes import load_pending
from frazil.sources.postgres.tables.description import TableOptions
from frazil.sources.protocol import TableRows
from tests.support.postgres.access import Database, database_on

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pytestmark = pytest.mark.services

FAR = 2**63 - 1


@pytest.fixture(scope="module", params=["postgres", "postgres_16"])
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    with database_on(request.getfixturevalue(request.param), f"db_{uuid4().hex[:8]}") as found:
        found.run("create publication sent for all tables with (publish_via_partition_root)")
        yield found


def settings(database: Database) -> PostgresSettings:
    return PostgresSettings(
        dsn=database.dsn,
        slot=f"of_{database.name}",
        publication="sent",
        creates_publication=False,
        include=("public.*",),
        exclude=(),
        spool=SpoolFiles("/nowhere", ()),
        spool_bytes=1,
        heartbeat_seconds=60,
        copy_connections=1,
        options=lambda _table: TableOptions(),
    )


def numbers_read(database: Database, table: str, keys: Sequence[Sequence[str]]) -> set[int]:
    """What the last column of the rows with these keys holds."""
    slot = f"copy_{uuid4().hex[:8]}"
    with CopyRound(settings(database), slot=slot, clock=SystemClock()) as opened:
        batch = opened.batch_of(table, keys)
        readings = [each for split in batch.splits for each in batch.reader.read(split)]
        batch.check()
    found: set[int] = set()
    for each in readings:
        assert isinstance(each, TableRows)
        last = str(batch.parts[0].table.columns[-1].number)
        found |= set(each.rows.column(last).to_pylist())
    return found


def test_rows_are_found_by_keys_of_any_type(database: Database) -> None:
    database.run(
        "create domain positive as int check (value > 0)",
        """
        create table keyed (
            "Word's" text, amount numeric, at uuid, flag bool, small positive, n int,
            primary key ("Word's", amount, at, flag, small)
        )
        """,
        """
        insert into keyed
        select 'it''s \\ ' || i, i / 10.0, lpad(i::text, 32, '0')::uuid, i % 2 = 0, i, i
        from generate_series(1, 9) i
        """,
    )
    keys = [
        ("it's \\ 2", "0.2", "00000000-0000-0000-0000-000000000002", "true", "2"),
        ("it's \\ 3", "0.30", "00000000-0000-0000-0000-000000000003", "false", "3"),
        ("it's \\ 4", "0.4", "00000000-0000-0000-0000-000000000005", "true", "4"),
    ]
    assert numbers_read(database, "public.keyed", keys) == {2, 3}
    assert numbers_read(database, "public.keyed", ()) == set(range(1, 10))


def test_rows_of_partitions_are_found_by_key_too(database: Database) -> None:
    database.run(
        "create table parted (id int primary key) partition by range (id)",
        "create table parted_1 partition of parted for values from (0) to (10)",
        "create table parted_2 partition of parted for values from (10) to (20)",
        "insert into parted select generate_series(0, 19)",
    )
    assert numbers_read(database, "public.parted", [["3"], ["13"], ["99"]]) == {3, 13}


def test_a_missing_table_is_reported_by_name(database: Database) -> None:
    with pytest.raises(SourceUnavailableError, match="not at the source"):
        numbers_read(database, "public.nowhere", ())


def test_the_changes_that_a_slot_keeps_are_reported_by_table_and_stay(database: Database) -> None:
    slot = f"kept_{database.name}"
    role = f"reader_{uuid4().hex[:8]}"
    database.run(
        "create table one (id int primary key, big text)",
        "create table other (id int primary key)",
        "create table quiet (id int primary key)",
        "create table cut (id int primary key)",
        f"create role {role} login replication password 'x'",
        f"select pg_create_logical_replication_slot('{slot}', 'pgoutput')",
        "insert into one select i, repeat('x', 1000) from generate_series(1, 100) i",
        "insert into other values (1)",
        "update other set id = 2",
        "truncate cut",
    )
    between = database.ask("select pg_current_wal_lsn() - '0/0'::pg_lsn")
    database.run("delete from one where id = 1")
    oids = {
        name: int(str(database.ask(f"select '{name}'::regclass::oid")))
        for name in ("one", "other", "quiet", "cut")
    }
    try:
        with connect(database.dsn_of(role, "x"), purpose="test") as session:
            first = load_pending(session, slot=slot, publication="sent", until=int(str(between)))
            found = load_pending(session, slot=slot, publication="sent", until=FAR)
            again = load_pending(session, slot=slot, publication="sent", until=FAR)
        assert found.keys() == {oids["one"], oids["other"], oids["cut"]}
        assert found == again
        assert first[oids["one"]] < found[oids["one"]]
        assert first[oids["one"]] < first[oids["other"]] < first[oids["cut"]] < int(str(between))
        assert found[oids["one"]] > int(str(between)) - 1
        connection = connect_replication(database.dsn, purpose="test")
        with (
            closing(connection),
            connection.stream(slot, after=0, publications=["sent"]),
            connect(database.dsn, purpose="test") as session,
            pytest.raises(SlotBusyError),
        ):
            load_pending(session, slot=slot, publication="sent", until=FAR)
    finally:
        database.run(f"drop role {role}")
