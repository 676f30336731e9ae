"""What a run does at a server first, for people and for programs."""

from __future__ import annotations

from pydantic import SecretStr

from frazil.errors import PositionLostError
from frazil.sources.postgres.preparation import describe_preparation
from frazil.sources.postgres.settings import PostgresSettings
from frazil.sources.postgres.spool_files import SpoolFiles
from frazil.sources.postgres.tables.description import TableOptions

SETTINGS = PostgresSettings(
    dsn=SecretStr("postgresql://h/d"),
    slot="shop_frazil",
    publication="shop_frazil",
    creates_publication=True,
    include=("*.*",),
    exclude=(),
    spool=SpoolFiles("spool"),
    spool_bytes=1,
    heartbeat_seconds=1.0,
    copy_connections=1,
    options=lambda _table: TableOptions(),
)


def test_a_prepared_server_has_no_work() -> None:
    found = describe_preparation(SETTINGS, kept_bytes=3 * 2**20)
    assert not found.has_work
    assert found.lines == (
        ("publication", "shop_frazil stays as it is"),
        ("slot", "shop_frazil is there and keeps 3.0 MiB of log unread"),
    )
    assert found.document == {
        "publication": "shop_frazil",
        "statements": [],
        "slot": "shop_frazil",
        "creates_slot": False,
        "kept_bytes": 3 * 2**20,
    }


def test_statements_and_a_new_slot_are_work() -> None:
    found = describe_preparation(
        SETTINGS, statements=("create publication a", "and more"), creates_slot=True
    )
    assert found.has_work
    assert found.lines == (
        ("publication", "create publication a"),
        ("publication", "and more"),
        ("slot", "shop_frazil is made"),
    )


def test_a_problem_is_kept() -> None:
    lost = PositionLostError("the slot is gone.")
    found = describe_preparation(SETTINGS, problem=lost)
    assert (found.problem, found.has_work) == (lost, False)
