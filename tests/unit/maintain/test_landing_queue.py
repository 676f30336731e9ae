"""What waits to land between merges, in order, and never at their cost."""

from __future__ import annotations

from concurrent.futures import CancelledError
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from frazil.errors import CommitConflictError, StorageError
from frazil.hooks import ManualClock
from frazil.maintain.compaction.landing import Landed
from frazil.maintain.compaction.landing_queue import LandingQueue

if TYPE_CHECKING:
    from frazil.clients.iceberg.commit.retrying import RetryPolicy

DONE = Landed(
    snapshot_id=1, files_added=1, files_removed=2, late_deletes=0, bytes_added=1, bytes_removed=2
)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime(2026, 1, 1, tzinfo=UTC))


def succeed(retry: RetryPolicy) -> Landed:
    assert retry.attempts == 1
    return DONE


def test_one_lands_at_a_time_with_a_pause_between(clock: ManualClock) -> None:
    queue = LandingQueue("t", pause_seconds=5.0, clock=clock)
    first, second = queue.put(succeed), queue.put(succeed)
    queue.land_next()
    queue.land_next()
    assert (first.done(), second.done(), len(queue)) == (True, False, 1)
    clock.advance(5.0)
    queue.land_next()
    assert (first.result(), second.result(), len(queue)) == (DONE, DONE, 0)


def test_a_lost_race_is_tried_again_until_too_many_are_lost(clock: ManualClock) -> None:
    queue = LandingQueue("t", pause_seconds=1.0, clock=clock)
    attempts: list[int] = []

    def lose(retry: RetryPolicy) -> Landed:
        attempts.append(retry.attempts)
        if len(attempts) < 3:
            raise CommitConflictError("the table has a newer head.")
        return DONE

    def always_lose(_retry: RetryPolicy) -> Landed:
        raise CommitConflictError("the table has a newer head.")

    done, lost = queue.put(lose), queue.put(always_lose)
    for _ in range(40):
        queue.land_next()
        clock.advance(1.0)
    assert (done.result(), len(attempts)) == (DONE, 3)
    with pytest.raises(CommitConflictError):
        lost.result()
    assert len(queue) == 0


def test_an_error_is_the_waiting_threads_and_not_the_merges(clock: ManualClock) -> None:
    queue = LandingQueue("t", clock=clock)

    def fail(_retry: RetryPolicy) -> Landed:
        raise StorageError("the store is away")

    done = queue.put(fail)
    queue.land_next()
    with pytest.raises(StorageError):
        done.result()


def test_what_nobody_lands_any_more_is_cancelled(clock: ManualClock) -> None:
    queue = LandingQueue("t", clock=clock)
    done, given_up = queue.put(succeed), queue.put(succeed)
    given_up.cancel()
    queue.land_next()
    clock.advance(10.0)
    queue.land_next()
    assert done.result() == DONE
    later = queue.put(succeed)
    queue.close()
    with pytest.raises(CancelledError):
        later.result()


def test_what_waits_too_long_is_taken_back_once(clock: ManualClock) -> None:
    queue = LandingQueue("t", clock=clock)
    first, second = queue.put(succeed), queue.put(succeed)
    assert queue.withdraw(second)
    assert not queue.withdraw(second)
    queue.land_next()
    assert not queue.withdraw(first)
    assert (first.result(), second.done()) == (DONE, False)
