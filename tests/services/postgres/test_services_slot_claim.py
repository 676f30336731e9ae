"""The lock that one process holds at the server while the others are standbys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from frazil.clients.postgres.lock_claim import LockClaim, lock_key
from frazil.errors import SlotBusyError, SourceUnavailableError
from tests.support.postgres.access import Database, database_on

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.demo.services import Postgres

pytestmark = [pytest.mark.services, pytest.mark.fault("N56")]


@pytest.fixture(scope="module")
def database(postgres: Postgres) -> Iterator[Database]:
    with database_on(postgres, "claim") as made:
        yield made


def claim_on(database: Database, slot: str) -> LockClaim:
    return LockClaim(database.dsn, f"slot {slot}")


def take(claim: LockClaim) -> None:
    with claim.turn():
        pass


def test_the_second_one_is_a_standby_until_the_first_lets_go(database: Database) -> None:
    first, second = claim_on(database, "one"), claim_on(database, "one")
    turns: list[LockClaim] = []
    first.on_turn, second.on_turn = (lambda: turns.append(first)), (lambda: turns.append(second))
    assert not first.may_merge
    take(first)
    take(first)
    assert turns == [first]
    for _ in range(2):
        with pytest.raises(SlotBusyError, match=r"server process \d+, frazil lock"):
            take(second)
    assert (first.may_merge, second.may_merge) == (True, False)
    first.release()
    take(second)
    assert (second.may_merge, second.turns) == (True, 1)
    assert turns == [first, second]
    second.release()


def test_slots_have_locks_of_their_own(database: Database) -> None:
    one, other = claim_on(database, "one"), claim_on(database, "other")
    take(one)
    take(other)
    one.release()
    other.release()
    assert lock_key("slot one") != lock_key("slot other")


def test_a_process_that_lost_the_lock_with_its_connection_is_a_standby(database: Database) -> None:
    first, second = claim_on(database, "one"), claim_on(database, "one")
    take(first)
    database.run(
        "select pg_terminate_backend(pid) from pg_stat_activity "
        "where application_name = 'frazil lock' and datname = current_database()"
    )
    take(second)
    with pytest.raises(SlotBusyError):
        take(first)
    assert (first.may_merge, second.may_merge) == (False, True)
    second.release()
    take(first)
    assert first.turns == 2
    first.release()


def test_a_source_that_does_not_answer_is_no_reason_to_stop_merging(database: Database) -> None:
    claim = claim_on(database, "one")
    turns: list[bool] = []
    claim.on_turn = lambda: turns.append(claim.may_merge)
    with pytest.raises(SourceUnavailableError), claim.turn():
        raise SourceUnavailableError("away")
    assert claim.may_merge
    assert turns == [True]
    claim.release()


def test_a_process_that_finds_the_slot_read_is_a_standby(database: Database) -> None:
    claim = claim_on(database, "one")
    with pytest.raises(SlotBusyError), claim.turn():
        raise SlotBusyError("read by another process")
    assert not claim.may_merge
    with pytest.raises(SourceUnavailableError), claim.turn():
        raise SourceUnavailableError("away")
    assert not claim.may_merge
    claim.release()
