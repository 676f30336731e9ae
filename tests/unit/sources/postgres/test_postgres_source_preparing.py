"""What a source compares before it goes on, and what one table's defect stops."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from frazil.clients.postgres.replication import SystemIdentity
from frazil.errors import (
    ConfigError,
    DefectError,
    ShutdownRequested,
    SourceReplacedError,
    SourceUnavailableError,
)
from frazil.model.marker import Marker
from frazil.model.postgres.facts import SlotFacts, WalStatus
from frazil.sources.postgres import preparation
from frazil.sources.postgres.copy import round as copy_round
from frazil.sources.postgres.copy.round import CopyRound
from frazil.sources.postgres.source import PostgresSource
from frazil.sources.postgres.stream.history_proof import SeenTransaction, Witness, encode_witness
from frazil.sources.postgres.tables.description import TableOptions, describe_table
from tests.support.postgres.sound import PUBLICATION
from tests.support.postgres.views import view

if TYPE_CHECKING:
    from collections.abc import Mapping

    from frazil.sources.postgres.tables.catalog_view import CatalogView

SERVER = SystemIdentity("7301", 1, 0x1000, "shop")
LAST = SeenTransaction(0x200, 700, 5_000)
IN_THE_LEDGER = Witness(begin=0x200, end=0x300, last=LAST)
READ_SINCE = Witness(begin=0x400, end=0x500, last=LAST._replace(final_lsn=0x400, xid=701))
SLOT = SlotFacts(
    name="s",
    plugin="pgoutput",
    database="shop",
    is_temporary=False,
    is_active=False,
    confirmed_flush=0x100,
    restart=0x80,
    wal_status=WalStatus.RESERVED,
    safe_wal_bytes=None,
    invalidation_reason=None,
    is_two_phase=False,
    is_failover=False,
)
SINCE = Marker(
    pipeline="p",
    source="postgres/7301/shop/s",
    position="0/300",
    batch="b",
    epoch=1,
    witness=encode_witness(IN_THE_LEDGER),
)


class Server(PostgresSource):
    """A source whose server answers these."""

    def __init__(self, *, server: SystemIdentity = SERVER, stops: bool = False) -> None:
        settings: Any = SimpleNamespace(slot="s", publication="p")
        super().__init__(settings, is_stopping=lambda: stops)
        self.found = server
        self.read_from: list[int] = []

    def _replication(self, _purpose: str) -> Any:
        return nullcontext(
            SimpleNamespace(identify=lambda: self.found, load_history=lambda _timeline: ())
        )

    def _require_unread(self) -> None:
        """No other process reads it."""

    def _load_artifacts(self) -> Any:
        return PUBLICATION, SLOT

    def _publish(self, *_tables: object, **_options: object) -> Mapping[str, Any]:
        return {}

    def _read_slot(self, after: int, *, purpose: str) -> Any:
        assert purpose == "history"
        self.read_from.append(after)
        return Silence(), 1


class Silence:
    """A stream that sends nothing for now."""

    def __enter__(self) -> Silence:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is held."""

    def receive(self, _seconds: float) -> list[Any]:
        return []


@pytest.mark.fault("N34")
def test_without_a_stream_the_log_is_compared_with_what_the_ledger_says() -> None:
    source = Server(stops=True)
    # A process that stops does not wait for a log that sends nothing.
    with pytest.raises(ShutdownRequested):
        source.prepare([], SINCE)
    assert source.read_from == [IN_THE_LEDGER.begin]


@pytest.mark.fault("N34")
def test_beside_a_stream_the_slot_is_not_read_again_and_what_was_read_since_counts() -> None:
    source = Server(server=replace(SERVER, log_end=READ_SINCE.end), stops=True)
    source._witness = READ_SINCE
    open_stream: Any = SimpleNamespace(backend=1)
    source._stream = open_stream
    # A table that joins has the source prepared again, while the stream goes on.
    source.prepare([], SINCE)
    assert source.read_from == []
    assert source._witness == READ_SINCE, "the ledger may be behind what was read"
    # What was read counts as reached, though neither ledger nor tables have it yet.
    source.found = replace(SERVER, log_end=READ_SINCE.end - 1)
    with pytest.raises(SourceReplacedError, match="restored"):
        source.prepare([], SINCE)


@pytest.mark.fault("N41")
def test_a_standby_is_judged_as_of_the_look_at_its_tables() -> None:
    source, since = Server(server=replace(SERVER, is_standby=True)), replace(SINCE, witness=None)
    source._observed_at = 0x2FF
    with pytest.raises(SourceUnavailableError, match="replayed up to 0/2FF"):
        source.prepare([], since)
    source._observed_at = 0x300
    assert source.prepare([], since) == since.position


# --- a defect while a table is described ---

WELL, BROKEN, WISHED_BADLY = "shop.well", "shop.broken", "shop.named"


def described(found: CatalogView, options: TableOptions) -> Any:
    if str(found.table.name) == BROKEN:
        raise IndexError("a value of a row")
    return describe_table(found, options)


def views() -> dict[str, CatalogView]:
    made = {}
    for name in (WELL, BROKEN, WISHED_BADLY):
        one = view()
        called = replace(one.table.name, schema="shop", name=name.removeprefix("shop."))
        made[name] = replace(one, table=replace(one.table, name=called))
    return made


def options(table: str) -> TableOptions:
    if table == WISHED_BADLY:
        raise ConfigError("another table has its name.")
    return TableOptions()


SETTINGS: Any = SimpleNamespace(
    publication="p", include=("shop.*",), exclude=(), creates_publication=True, options=options
)


@pytest.mark.fault("N44")
def test_a_defect_while_a_table_is_looked_at_leaves_the_others_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = views()
    monkeypatch.setattr(preparation, "load_all_views", lambda *_a, **_k: found)
    monkeypatch.setattr(preparation, "find_obstacle", lambda *_a, **_k: None)
    monkeypatch.setattr(preparation, "describe_table", described)
    no_session: Any = None
    tables = {each.name: each for each in preparation.discover_tables(no_session, SETTINGS)}
    assert tables[WELL].columns
    assert tables[WELL].obstacle is None
    # It is there, and is itself: reading it tells what is wrong.
    assert tables[BROKEN].columns == ()
    assert tables[BROKEN].identity
    assert tables[BROKEN].obstacle is None
    assert isinstance(tables[WISHED_BADLY].obstacle, ConfigError)


@pytest.mark.fault("N44")
def test_a_defect_while_a_table_is_to_be_copied_is_its_own_trouble(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(copy_round, "describe_table", described)
    monkeypatch.setattr(copy_round, "find_obstacle", lambda *_a, **_k: None)
    monkeypatch.setattr(copy_round, "is_published", lambda _view: True)
    opened = object.__new__(CopyRound)
    opened._settings, opened._refused = SETTINGS, {}
    opened._tables, opened._failures = {}, {}
    for name, each in views().items():
        opened._take(name, each, ())
    assert opened._tables.keys() == {WELL}
    assert isinstance(opened._failures[WISHED_BADLY], ConfigError)
    trouble = opened._failures[BROKEN]
    assert isinstance(trouble, DefectError)
    assert trouble.table == BROKEN
    assert "IndexError" in str(trouble)
    assert "a value of a row" not in str(trouble)
