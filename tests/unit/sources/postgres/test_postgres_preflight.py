"""Every problem that may be found before anything starts, one sentence each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from frazil.model.postgres.facts import (
    GeneratedKind,
    IdentityKind,
    Persistence,
    PostgresFacts,
    PrimaryKey,
    PublicationFacts,
    RelationKind,
    RunningTransaction,
    TablePrivileges,
    UniqueKey,
    WalStatus,
)
from frazil.model.postgres.names import QualifiedName
from frazil.sources.findings import Problem, Severity
from frazil.sources.postgres.checks.preflight import find_problems
from frazil.sources.postgres.preflight_settings import PreflightSettings
from tests.support.postgres.sound import (
    GIB,
    PUBLICATION,
    ROLE,
    SENT,
    SERVER,
    SLOT,
    SOUND,
    TABLE,
    attribute,
)

STOPS, WARNS = Severity.STOPS, Severity.WARNS
SETTINGS = PreflightSettings(
    slot="sales_frazil",
    publication="sales_frazil",
    creates_publication=True,
    held_wal_bytes=10 * GIB,
)


def server(**changed: Any) -> PostgresFacts:
    return replace(SOUND, server=replace(SERVER, **changed))


def slot(**changed: Any) -> PostgresFacts:
    return replace(SOUND, slot=replace(SLOT, **changed))


def publication(**changed: Any) -> PostgresFacts:
    return replace(SOUND, publication=replace(PUBLICATION, **changed))


def table(**changed: Any) -> PostgresFacts:
    return replace(SOUND, tables=(replace(TABLE, **changed),))


def sent(**changed: Any) -> PostgresFacts:
    return publication(tables=(replace(SENT, **changed),))


def only(facts: PostgresFacts, settings: PreflightSettings = SETTINGS) -> Problem:
    found = find_problems(facts, settings)
    assert len(found) == 1, [problem.sentence for problem in found]
    return found[0]


def test_a_sound_server_has_no_problem() -> None:
    assert find_problems(SOUND, SETTINGS) == ()
    assert find_problems(replace(SOUND, slot=None, publication=None), SETTINGS) == ()


FOREIGN = TablePrivileges(uses_schema=True, selects=True, owns=False)
MODEST = replace(ROLE, may_create_publication=False)
ORDERS_SQL = '"shop"."orders"'
OTHER = replace(SENT, oid=2, name=QualifiedName("shop", "other"))
OURS = replace(SENT, oid=3, name=QualifiedName("frazil", "claims"), membership_oid=None)
OPEN = RunningTransaction(process=7, role="ann", age_seconds=61.2)
PREPARED = RunningTransaction(process=None, role="ann", age_seconds=5.0, prepared="it's")
COMPUTED = (attribute(1, "id"), attribute(2, "twice", generated=GeneratedKind.VIRTUAL))
DEFERRABLE = PrimaryKey(columns=("id",), is_deferrable=True)
UNIQUE_WORD = UniqueKey(oid=71, columns=("word",), made_by=1)
KEYED_BY_WORD = replace(SETTINGS, keys={"shop.orders": ("word",)})

CASES: dict[str, tuple[PostgresFacts, Severity, str, tuple[str, ...]]] = {
    "an old version": (server(version=130014), STOPS, "PostgreSQL 13", ()),
    "a version that is too new": (server(version=190000), WARNS, "tested up to 18", ()),
    "the level of the log": (
        server(wal_level="replica"),
        STOPS,
        "wal_level is replica",
        ("alter system set wal_level = 'logical';",),
    ),
    "an encoding that is none": (server(encoding="SQL_ASCII"), WARNS, "SQL_ASCII", ()),
    "a standby that cannot": (server(version=150000, is_standby=True), STOPS, "primary only", ()),
    "a standby that can": (
        server(is_standby=True),
        WARNS,
        "is a standby",
        ("select pg_log_standby_snapshot();",),
    ),
    "a role that may not replicate": (
        server(role=replace(ROLE, may_replicate=False)),
        STOPS,
        "role frazil may not replicate",
        ('alter role "frazil" replication;',),
    ),
    "no slot left for a copy": (
        server(slots_used=10),
        WARNS,
        "10 of 10 replication slots",
        ("alter system set max_replication_slots = 11;",),
    ),
    "no slot left at all": (
        replace(server(slots_used=10), slot=None),
        STOPS,
        "10 of 10 replication slots",
        ("alter system set max_replication_slots = 12;",),
    ),
    "no replication connection left": (
        server(senders_used=10),
        STOPS,
        "10 of 10 replication connections",
        ("alter system set max_wal_senders = 12;",),
    ),
    "one replication connection left": (
        server(senders_used=9),
        WARNS,
        "9 of 10 replication connections",
        ("alter system set max_wal_senders = 12;",),
    ),
    "a log that may grow for ever": (
        server(slot_wal_limit_bytes=None),
        WARNS,
        "max_slot_wal_keep_size is not set",
        ("alter system set max_slot_wal_keep_size = '40GB';", "select pg_reload_conf();"),
    ),
    "a log that may grow too little": (
        server(slot_wal_limit_bytes=GIB),
        WARNS,
        "is 1.0 GiB, less than the 10 GiB",
        ("alter system set max_slot_wal_keep_size = '10GB';", "select pg_reload_conf();"),
    ),
    "a slot that may not rest": (
        server(idle_slot_limit_seconds=3600),
        WARNS,
        "idle_replication_slot_timeout is 3600 s",
        ("alter system set idle_replication_slot_timeout = 0;", "select pg_reload_conf();"),
    ),
    "no encryption": (server(uses_tls=False), WARNS, "not encrypted", ()),
    "a clock that is ahead": (server(clock_ahead_seconds=90.2), WARNS, "90 s ahead of", ()),
    "a clock that is behind": (server(clock_ahead_seconds=-7), WARNS, "7 s behind", ()),
    "a slot of another plugin": (
        slot(plugin="wal2json"),
        STOPS,
        "uses wal2json in sales, not pgoutput in sales",
        ("select pg_drop_replication_slot('sales_frazil');",),
    ),
    "a slot of another database": (slot(database="hr"), STOPS, "uses pgoutput in hr", ()),
    "a physical slot": (slot(plugin=None, database=None), STOPS, "is physical", ()),
    "a slot that is lost": (
        slot(wal_status=WalStatus.LOST),
        STOPS,
        "is lost (the log it needs was removed)",
        ("select pg_drop_replication_slot('sales_frazil');",),
    ),
    "a slot that was invalidated": (
        slot(invalidation_reason="idle_timeout"),
        STOPS,
        "is lost (idle_timeout)",
        (),
    ),
    "a slot that will be lost": (
        slot(wal_status=WalStatus.UNRESERVED),
        WARNS,
        "about to be lost",
        ("alter system set max_slot_wal_keep_size = -1;",),
    ),
    "a slot that is read": (slot(is_active=True), WARNS, "is being read", ()),
    "a slot with two phases": (slot(is_two_phase=True), STOPS, "are prepared", ()),
    "a publication that leaves something out": (
        publication(sends_deletes=False, sends_truncates=False),
        STOPS,
        "does not send delete, truncate",
        ("alter publication \"sales_frazil\" set (publish = 'insert, update, delete, truncate');",),
    ),
    "a publication that lacks a table": (
        replace(publication(is_ours=False, tables=()), tables=(TABLE,)),
        STOPS,
        "does not have shop.orders",
        (f'alter publication "sales_frazil" add table only {ORDERS_SQL};',),
    ),
    "a publication of all tables, ours as well": (
        publication(tables=(SENT, OURS)),
        STOPS,
        "frazil's own frazil.claims",
        (),
    ),
    "a publication of a table that is not selected": (
        publication(tables=(SENT, OTHER)),
        WARNS,
        "also sends shop.other",
        ('alter publication "sales_frazil" drop table only "shop"."other";',),
    ),
    "partitions under their own names": (
        replace(
            publication(via_root=False, tables=(OTHER,)),
            tables=(replace(TABLE, kind=RelationKind.PARTITIONED),),
        ),
        STOPS,
        "of shop.orders under the names of the partitions",
        ('alter publication "sales_frazil" set (publish_via_partition_root = true);',),
    ),
    "some columns": (
        sent(columns=("id",), has_column_list=True),
        WARNS,
        "Only some columns of shop.orders are published: id.",
        (),
    ),
    "some rows": (sent(row_filter="(id > 1)"), WARNS, "published: where (id > 1).", ()),
    "a column list without the key": (
        sent(columns=("word",)),
        STOPS,
        "The column list of shop.orders lacks key columns: id.",
        (),
    ),
    "a table of another role, without a publication": (
        replace(table(privileges=FOREIGN), publication=None),
        STOPS,
        "does not own shop.orders",
        (
            f'create publication "sales_frazil" for table only {ORDERS_SQL} '
            "with (publish_via_partition_root = true);",
        ),
    ),
    "no right to create a publication": (
        replace(server(role=MODEST), publication=None),
        STOPS,
        "may not create one in sales",
        ('grant create on database "sales" to "frazil";',),
    ),
    "no table": (replace(SOUND, tables=(), publication=None), STOPS, "No table", ()),
    "a pattern that means nothing": (
        replace(SOUND, unmatched=("shop.order*",)),
        WARNS,
        "source.tables has shop.order*,",
        (),
    ),
    "a table that is not there": (
        replace(SOUND, unmatched=("shop.absent",)),
        STOPS,
        "source.tables has shop.absent, and this database has no such table.",
        (),
    ),
    "a table that is misspelt": (
        replace(SOUND, unmatched=("shop.oders",), nearest={"shop.oders": "shop.orders"}),
        STOPS,
        "no such table; did you mean shop.orders?",
        (),
    ),
    "a transaction that is open": (
        replace(SOUND, transactions=(OPEN,)),
        WARNS,
        "transactions have ended: process 7 of ann, open for 61 s.",
        ("select pg_terminate_backend(7);",),
    ),
    "a transaction that is prepared": (
        replace(SOUND, transactions=(PREPARED,)),
        WARNS,
        "prepared transaction 'it''s' of ann, open for 5 s.",
        ("rollback prepared 'it''s';",),
    ),
    "a transaction of which little is shown": (
        replace(SOUND, transactions=(replace(OPEN, role=None, age_seconds=None),)),
        WARNS,
        "process 7 of an unknown role.",
        (),
    ),
    "a view": (
        replace(table(kind=RelationKind.VIEW), publication=None),
        STOPS,
        "shop.orders is a view",
        (),
    ),
    "an unlogged table": (
        replace(table(persistence=Persistence.UNLOGGED), publication=None),
        STOPS,
        "shop.orders is unlogged",
        (f"alter table {ORDERS_SQL} set logged;",),
    ),
    "a schema that is closed": (
        table(privileges=TablePrivileges(uses_schema=False, selects=True, owns=True)),
        STOPS,
        "may not use the schema shop",
        ('grant usage on schema "shop" to "frazil";',),
    ),
    "a table that may not be read": (
        table(privileges=TablePrivileges(uses_schema=True, selects=False, owns=True)),
        STOPS,
        "may not read shop.orders",
        (f'grant select on {ORDERS_SQL} to "frazil";',),
    ),
    "a policy": (
        table(has_row_security=True),
        STOPS,
        "row-level security",
        ('alter role "frazil" bypassrls;',),
    ),
    "a generated column": (
        table(attributes=COMPUTED),
        WARNS,
        "not sent and will be missing: twice",
        (),
    ),
    "a table without a key": (
        table(key=None, identity_columns=()),
        WARNS,
        "shop.orders has no primary key",
        (f"alter table {ORDERS_SQL} add primary key (…);",),
    ),
    "a key that may be deferred": (
        table(key=DEFERRABLE, identity_columns=()),
        WARNS,
        "is deferrable",
        (f"alter table {ORDERS_SQL} replica identity full;",),
    ),
    "no replica identity": (
        table(identity=IdentityKind.NOTHING, identity_columns=()),
        WARNS,
        "shop.orders has no replica identity",
        (f"alter table {ORDERS_SQL} replica identity default;",),
    ),
    "a replica identity without the key": (
        table(identity=IdentityKind.INDEX, identity_columns=("word",)),
        WARNS,
        "does not have the key columns id",
        (f"alter table {ORDERS_SQL} replica identity default;",),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_problem_is_found_with_what_fixes_it(case: str) -> None:
    facts, severity, text, sql = CASES[case]
    problem = only(facts)
    assert problem.severity is severity
    assert text in problem.sentence
    assert problem.sql[: len(sql)] == sql
    assert problem.sentence.endswith((".", ":", "?"))


def test_what_stops_comes_first() -> None:
    facts = replace(server(wal_level="replica", clock_ahead_seconds=60), tables=())
    severities = [problem.severity for problem in find_problems(facts, SETTINGS)]
    assert severities == sorted(severities, key=[STOPS, WARNS].index)
    assert set(severities) == {STOPS, WARNS}


@pytest.mark.fault("N41")
def test_a_standby_that_does_not_say_which_rows_it_needs_may_lose_its_slot() -> None:
    found = find_problems(server(is_standby=True, has_standby_feedback=False), SETTINGS)
    assert {problem.severity for problem in found} == {WARNS}
    assert "hot_standby_feedback is off" in found[1].sentence


def test_a_publication_that_is_not_created_must_exist() -> None:
    settings = replace(SETTINGS, creates_publication=False)
    problem = only(replace(SOUND, publication=None), settings)
    assert "source.publication.create is false" in problem.sentence
    standby = replace(server(is_standby=True), publication=None)
    assert "on the primary" in find_problems(standby, SETTINGS)[0].sentence


def test_a_generated_column_that_is_published_is_no_problem() -> None:
    facts = replace(
        table(attributes=COMPUTED),
        publication=replace(PUBLICATION, tables=(replace(SENT, columns=("id", "twice")),)),
    )
    assert find_problems(facts, SETTINGS) == ()


def test_a_configured_key_must_be_there_and_be_sent() -> None:
    unknown = replace(SETTINGS, keys={"shop.orders": ("code",)})
    assert "columns the table lacks: code" in only(SOUND, unknown).sentence
    problem = only(table(unique_keys=(UNIQUE_WORD,)), KEYED_BY_WORD)
    assert "does not have the key columns word" in problem.sentence
    assert problem.sql == (f"alter table {ORDERS_SQL} replica identity full;",)
    full = {"identity": IdentityKind.FULL, "identity_columns": ("id", "word"), "key": DEFERRABLE}
    assert find_problems(table(**full, unique_keys=(UNIQUE_WORD,)), KEYED_BY_WORD) == ()


@pytest.mark.fault("N38")
def test_a_configured_key_that_nothing_keeps_unique_is_reported_with_what_would() -> None:
    problem = only(table(unique_keys=()), KEYED_BY_WORD)
    assert "unique" in problem.sentence
    assert problem.severity is STOPS
    assert problem.sql == (
        f'alter table {ORDERS_SQL} alter column "word" set not null;',
        f'create unique index concurrently on {ORDERS_SQL} ("word");',
    )


def test_transactions_that_have_just_begun_are_not_reported_and_many_are_counted() -> None:
    assert (
        find_problems(replace(SOUND, transactions=(replace(OPEN, age_seconds=0.2),)), SETTINGS)
        == ()
    )
    many = tuple(replace(OPEN, process=n) for n in range(7))
    assert only(replace(SOUND, transactions=many)).sentence.endswith("61 s and 2 more.")


def test_a_run_of_our_own_may_use_the_last_connection() -> None:
    facts = replace(server(senders_used=10), slot=replace(SLOT, is_active=True))
    assert {problem.severity for problem in find_problems(facts, SETTINGS)} == {WARNS}


def test_many_tables_are_counted_and_not_all_named() -> None:
    sent = tuple(replace(SENT, oid=n + 10, name=QualifiedName("shop", f"t{n}")) for n in range(7))
    problem = only(publication(tables=(SENT, *sent)))
    assert "shop.t0, shop.t1, shop.t2, shop.t3, shop.t4 and 2 more" in problem.sentence
    assert '"shop"."t6"' in problem.sql[0]


@pytest.mark.fault("N40")
@pytest.mark.parametrize("there", [publication(tables=()).publication, None])
def test_a_foreign_table_is_its_own_problem(there: PublicationFacts | None) -> None:
    foreign = replace(TABLE, oid=2, name=QualifiedName("shop", "theirs"), privileges=FOREIGN)
    problem = only(replace(SOUND, publication=there, tables=(TABLE, foreign)))
    assert (problem.severity, problem.table) == (STOPS, "shop.theirs")
    assert '"shop"."theirs"' in problem.sql[0]
