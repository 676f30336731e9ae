"""Records that are no rows become dead letters once, whatever ends in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from frazil.errors import ConfigError, StorageError, TableNotFoundError
from frazil.hooks import InjectedFault, armed
from frazil.ledger.table_state import Paused, Streaming
from frazil.testing.in_memory_database import InsertRow, RejectRecord
from tests.support.ingest.world import ORDERS, USERS, World, live, world

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frazil.ingest.ingester import Ingester
    from frazil.model.records.rejected_record import RejectedRecord

__all__ = ["world"]

pytestmark = [pytest.mark.spark, pytest.mark.services]

# The first commit is that of the dead letters, the next ones are those of tables.
POINTS = [
    "ingest.planned", "ingest.written", "commit.planned", "commit.staged", "commit.landed",
    "commit.planned=error@2", "commit.landed=error@2", "commit.landed=error@3",
    "ingest.committed", "ingest.recorded", "ingest.acknowledged",
]  # fmt: skip


@pytest.mark.fault("P8")
@pytest.mark.parametrize("point", POINTS)
def test_a_rejected_record_is_kept_once_wherever_a_process_ends(world: World, point: str) -> None:
    live(world)
    world.database.transact(
        InsertRow(USERS, {"id": 2, "name": "new"}),
        RejectRecord(USERS, b"first"),
        RejectRecord(USERS, b"second"),
    )
    world.database.transact(RejectRecord(ORDERS, b"alone"))
    ingester, _ = world.start()
    fault = point if "=" in point else f"{point}=error@1"
    with armed(fault), pytest.raises(InjectedFault):
        ingester.step()
    # The batch that follows has the same records and more.
    world.database.transact(RejectRecord(USERS, b"third"), RejectRecord(ORDERS, b"fourth"))
    world.add(USERS, 3)
    world.run()
    world.check(USERS, ORDERS)
    assert world.letters() == [
        (ORDERS, b"alone"), (ORDERS, b"fourth"),
        (USERS, b"first"), (USERS, b"second"), (USERS, b"third"),
    ]  # fmt: skip


def test_a_table_that_rejects_too_much_stops_and_the_others_go_on(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    live(world)
    world.most_rejected_bytes = 2_000
    ingester = world.run()
    world.add(USERS, 2)
    for each in range(4):
        world.database.transact(RejectRecord(USERS, b"canary %d" % each))
    world.database.transact(RejectRecord(ORDERS, b"canary"))
    world.add(ORDERS, 2)
    report = ingester.step()
    assert report is not None
    assert report.rejected == {(ORDERS, "invalid"): 1}
    world.run(ingester)
    world.check(ORDERS)
    assert world.letters() == [(ORDERS, b"canary")]
    state = world.states(ingester)[USERS]
    assert isinstance(state, Paused)
    assert state.cause.code == "FRZ-SRC-07"
    assert "4 records of one batch were rejected" in state.cause.reason
    assert "lower ingest.max_rows" in str(state.cause.remedy)
    assert "canary" not in caplog.text + str(state.cause)
    # Then it may be more, and the others' are not repeated.
    ingester.close()
    world.most_rejected_bytes = 10**6
    ingester = world.run()
    assert world.states(ingester)[USERS] == Streaming()
    world.check(USERS, ORDERS)
    expected = [(USERS, b"canary %d" % each) for each in range(4)]
    assert world.letters() == [(ORDERS, b"canary"), *expected]


def test_a_pipeline_that_rejects_nothing_has_no_table_of_dead_letters(world: World) -> None:
    live(world)
    with pytest.raises(TableNotFoundError):
        world.case.lake.open(world.dead_letters)


class OwnLetters:
    """Where a source keeps rejected records itself; away at first."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.is_away = True
        self.kept: dict[int, bytes] = {}
        self.rows_seen: list[int] = []

    def keep(self, records: Sequence[RejectedRecord]) -> None:
        if self.is_away:
            raise StorageError("the source's own dead letters are away.")
        self.rows_seen.append(len(self.world.rows(USERS)))
        self.kept |= {each.offset: each.payload for each in records}


@pytest.mark.fault("P9")
def test_a_source_may_keep_them_itself_before_anything_is_committed(world: World) -> None:
    live(world)
    own = OwnLetters(world)
    ingester, source = world.start()
    source.keep_rejected = own.keep
    ingester.start()
    before = ingester.acknowledged
    world.database.transact(
        InsertRow(USERS, {"id": 2, "name": "new"}), RejectRecord(USERS, b"first")
    )
    with pytest.raises(StorageError):
        ingester.step()
    assert len(world.rows(USERS)) == 1, "nothing is committed unless all is kept"
    assert ingester.acknowledged == before
    own.is_away = False
    world.run(ingester)
    world.check(USERS)
    assert list(own.kept.values()) == [b"first"]
    assert own.rows_seen == [1]
    with pytest.raises(TableNotFoundError):
        world.case.lake.open(world.dead_letters)


@pytest.mark.fault("P9")
def test_dead_letters_that_cannot_be_kept_fail_the_batch(world: World) -> None:
    live(world)
    ingester: Ingester = world.run()
    before = ingester.acknowledged
    world.database.transact(RejectRecord(USERS, b"first"))
    world.add(USERS, 2)
    # As if the configuration of another pipeline named the same table.
    world.spark.sql(f"create table {world.dead_letters.quoted} (other string) using iceberg")
    with pytest.raises(ConfigError):
        ingester.step()
    assert ingester.acknowledged == before
    world.spark.sql(f"drop table {world.dead_letters.quoted}")
    world.run(ingester)
    world.check(USERS)
    assert world.letters() == [(USERS, b"first")]
