"""Tables that begin live in a source with one log, as a buffer of events has them."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.hooks import InjectedFault
from frazil.ingest import batch_run, ingester
from frazil.ingest.settings import IngestSettings
from frazil.ledger.table_state import Paused, Streaming
from frazil.model.schema.types import Primitive
from frazil.model.source_table import TableBegin
from frazil.pipeline.recovery import may_pass
from frazil.sources.protocol import Limit
from frazil.testing.in_memory_database import InMemoryDatabase, InsertRow
from frazil.testing.in_memory_source import InMemorySource
from tests.support.ingest.shared_workers import Changelog, MemoryIngester, MemoryLedger, read_batch

USERS, LATER = "shop.users", "shop.later"
POINTS = ("ingest.committed", "ledger", "ingest.recorded", "ingest.acknowledged")


class Live:
    """A log whose tables begin live, and processes that come one after the other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.database = InMemoryDatabase(begins=TableBegin.STREAM)
        self.changelogs: dict[str, Changelog] = {}
        self.dies_at: str | None = None
        self.ledger = MemoryLedger(lambda: self.pass_point("ledger"))
        self.add_table(USERS)
        monkeypatch.setattr(batch_run, "_read", read_batch)
        for module in (batch_run, ingester):
            monkeypatch.setattr(module, "failpoint", self.pass_point)

    def pass_point(self, point: str) -> None:
        if point == self.dies_at:
            self.dies_at = None
            raise InjectedFault

    def add_table(self, name: str) -> None:
        self.database.add_table(name, {"id": Primitive.LONG}, key=["id"])

    def add(self, *rows: tuple[str, int]) -> None:
        """Rows of several tables in one transaction."""
        self.database.transact(*(InsertRow(table, {"id": number}) for table, number in rows))

    def start(self) -> MemoryIngester:
        none: Any = None
        made = MemoryIngester(
            none,
            none,
            InMemorySource(self.database),
            self.ledger,
            settings=IngestSettings(
                pipeline="p", limit=Limit(100, 1 << 20), held_bytes=1 << 20, may_pass=may_pass
            ),
            captures=none,
        )
        made.changelogs = self.changelogs
        return made

    def run(self, worker: MemoryIngester | None = None) -> MemoryIngester:
        worker = worker or self.start()
        while worker.step() is not None:
            pass
        return worker

    def check(self, *tables: str) -> None:
        for table in tables:
            expected = {row["id"] for row in self.database.contents(table)}
            found = [row[2] for row in self.changelogs[table].rows]
            assert sorted(map(str, found)) == sorted(map(str, expected))


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> Live:
    return Live(monkeypatch)


def test_a_table_appears_with_its_first_commit(live: Live) -> None:
    worker = live.run()
    assert worker.table_states[USERS].state == Streaming()
    assert not live.changelogs
    live.add((USERS, 1))
    live.run(worker)
    live.check(USERS)
    assert worker.table_states[USERS].identity


def test_a_table_whose_first_change_is_in_a_batch_of_others_loses_nothing(live: Live) -> None:
    live.add((USERS, 1))
    worker = live.run()
    live.add_table(LATER)
    live.add((USERS, 2), (LATER, 1))
    # The batch knows nothing of the new table, and must not be acknowledged.
    live.run(worker)
    live.check(USERS, LATER)


@pytest.mark.parametrize("point", POINTS)
def test_a_process_may_end_anywhere_in_the_first_commit(live: Live, point: str) -> None:
    live.run()
    live.add((USERS, 1), (USERS, 2))
    live.dies_at = point
    with pytest.raises(InjectedFault):
        live.run()
    live.add((USERS, 3))
    live.run()
    live.check(USERS)


def test_a_changelog_that_is_lost_pauses_its_table(live: Live) -> None:
    live.add((USERS, 1))
    live.run()
    live.changelogs.clear()
    live.add((USERS, 2))
    worker = live.run()
    assert isinstance(worker.table_states[USERS].state, Paused)
    assert not live.changelogs


def test_a_table_that_goes_before_its_first_change_leaves_nothing(live: Live) -> None:
    live.add_table(LATER)
    live.run()
    live.database.drop_table(LATER)
    live.add((USERS, 1))
    worker = live.run()
    assert set(worker.table_states) == {USERS}
    live.check(USERS)
