"""Schedules keep their intervals whatever the calendar, the zone or the wall clock does (O9)."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from frazil.codec.key_index.entries import Entries
from frazil.codec.key_index.run import decode_run, encode_run
from frazil.errors import CatalogError
from frazil.model.humanize import ago, until
from frazil.pipeline.loops.loop import JITTER
from tests.support.merge.loop_stage import INTERVAL, Stage, status_of
from tests.support.merge.scripted import StageClock
from tests.unit.codec.key_index.index_rows import rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.fault("O9")

MOMENTS = {
    "the end of 32 bits": datetime(2038, 1, 19, 3, 13, 30, tzinfo=UTC),
    "the end of unsigned 32 bits": datetime(2106, 2, 7, 6, 27, 40, tzinfo=UTC),
    "an hour that is left out": datetime(2026, 3, 29, 0, 58, 30, tzinfo=UTC),
    "an hour that comes twice": datetime(2026, 10, 25, 0, 58, 30, tzinfo=UTC),
    "a leap second": datetime(2016, 12, 31, 23, 58, 30, tzinfo=UTC),
    "a leap day": datetime(2028, 2, 28, 23, 58, 30, tzinfo=UTC),
    "the end of a century": datetime(2099, 12, 31, 23, 58, 30, tzinfo=UTC),
}
RUNS = 5


class SetClock(StageClock):
    """A clock that is set once, while time goes on as it did."""

    def __init__(self, start: datetime, *, at: float, by: timedelta) -> None:
        super().__init__(start)
        self._at, self._by = at, by

    def now(self) -> datetime:
        return super().now() + (self._by if self.monotonic() >= self._at else timedelta())


@pytest.fixture(params=["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", request.param)
        time.tzset()
        yield request.param
    time.tzset()


def began_at(stage: Stage, *script: int | Exception) -> list[float]:
    """Merge for so many intervals; when each run of the table began."""
    seconds = INTERVAL.total_seconds()
    stage.until(RUNS * seconds)
    table = stage.table("users", *script, seconds=1.0)
    loop = stage.loop()
    loop.run()
    due = status_of(loop, "users").next_run
    assert due is not None
    assert due.tzinfo is not None
    assert due - stage.clock.now() <= INTERVAL
    return table.began


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize("name", MOMENTS)
def test_a_table_is_merged_on_its_interval_at_any_time(name: str) -> None:
    began = began_at(Stage(clock=StageClock(MOMENTS[name])), *range(RUNS))
    assert len(began) >= RUNS
    for one, other in pairwise(began):
        assert (1 - JITTER) * INTERVAL.total_seconds() <= other - one <= INTERVAL.total_seconds()


@pytest.mark.parametrize(
    "by", [timedelta(hours=-1), timedelta(days=-30), timedelta(hours=1), timedelta(days=366)]
)
def test_a_wall_clock_that_is_set_changes_no_interval(by: timedelta) -> None:
    script = (0, CatalogError("away"), 0, 0, 0)
    undisturbed = began_at(Stage(), *script)
    start = datetime(2026, 3, 1, 12, tzinfo=UTC)
    half = 1.5 * INTERVAL.total_seconds()
    assert began_at(Stage(clock=SetClock(start, at=half, by=by)), *script) == undisturbed


@pytest.mark.parametrize("name", MOMENTS)
def test_distances_are_right_across_any_moment(name: str) -> None:
    before = MOMENTS[name]
    after = before + timedelta(minutes=3)
    assert ago(before, after) == "3 min ago"
    assert until(after, before) == "in 3 min"


@pytest.mark.parametrize("name", MOMENTS)
def test_a_tombstone_keeps_its_time_in_the_index(name: str) -> None:
    seconds = int(MOMENTS[name].timestamp())
    one = np.ones(1, np.int64)
    entries = Entries(
        one.astype(np.uint64), None, -one.astype(np.int32), -one, pa.array(["a"]), seconds * one
    )
    assert rows_of(decode_run(encode_run(entries), bits=0, bucket=0))[0][-1] == seconds
