"""A busy source, a pipeline that is killed, and services that come and go: mirror = source."""

from __future__ import annotations

import os
from statistics import median
from typing import TYPE_CHECKING

import pytest

from tests.support.process.soaking import LAG_SECONDS, Soak

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.process.soaking import Life

pytestmark = pytest.mark.spark

SEED = int(os.environ.get("FRAZIL_SEED", "7"))
DEEP_SECONDS = float(os.environ.get("FRAZIL_SOAK_SECONDS", "1200"))
# What allocators and Arrow's pools take until they have what they want.
MEMORY_ROOM = 150 * 2**20
# A connection that is being made, a file that is being read, a thread that is about to end.
DESCRIPTOR_ROOM, THREAD_ROOM = 40, 20


@pytest.mark.fault("K12")
@pytest.mark.timeout(900)
def test_mirrors_equal_their_source_after_kills_pauses_and_restarts(tmp_path: Path) -> None:
    # Each kind of event once. How available a pipeline is needs a longer time to be judged.
    soak(tmp_path, seconds=8.0, every=3.0, least_availability=0.0, merge_interval="2s")


@pytest.mark.fault("K12", "O8")
@pytest.mark.deep
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("seconds", "every", "least_availability"), [(60.0, 10.0, 0.5), (DEEP_SECONDS, 45.0, 0.95)]
)
def test_a_long_run_stays_available_and_flat(
    tmp_path: Path, seconds: float, every: float, least_availability: float
) -> None:
    soak(tmp_path, seconds=seconds, every=every, least_availability=least_availability)


def soak(
    folder: Path,
    *,
    seconds: float,
    every: float,
    least_availability: float,
    merge_interval: str = "10s",
) -> None:
    print(f"seed {SEED}")  # noqa: T201
    with Soak(
        folder, seed=SEED, transactions_per_second=20.0, merge_interval=merge_interval
    ) as world:
        world.start()
        world.wait_until_fresh()
        world.disturb(seconds, every=every)
        world.workload.stop()
        world.wait_until_fresh()
        verified = world.verify()
        assert verified.returncode == 0, f"{verified.stdout}\n{verified.stderr[-3000:]}"
        assert world.stop() == 0
        counts = world.workload.counts
        print(*world.events, sep="\n")  # noqa: T201
        print(  # noqa: T201
            f"{counts.transactions:,} transactions, {counts.outages} outages, "
            f"{len(world.lives)} lives, lag below {LAG_SECONDS:.0f} s for "
            f"{world.availability:.1%} of the time, at most {max(world.lags):.0f} s"
        )
    assert counts.transactions > seconds
    for life in world.lives:
        assert_flat(life)
    assert world.availability >= least_availability


def assert_flat(life: Life) -> None:
    """The second half of a life uses what the first one did."""
    uses = life.settled
    half = len(uses) // 2
    if half < 5:
        return
    for name, room in (
        ("resident", MEMORY_ROOM),
        ("descriptors", DESCRIPTOR_ROOM),
        ("threads", THREAD_ROOM),
    ):
        before = median(getattr(each, name) for each in uses[:half])
        after = median(getattr(each, name) for each in uses[half:])
        assert after <= before + room, f"{name}: {before:,} and then {after:,}"
