from __future__ import annotations

from dataclasses import dataclass
from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.mirror.index.run_merging import plan_bits, plan_bounded_merge, plan_run_merge
from tests.support.sampling import examples

YOUNG = 65_536
LARGE = 40_000_000


@dataclass(frozen=True)
class Run:
    size: int
    has_large: bool = False


class Growth:
    """Runs of an index while young ones are flushed into it; dead entries are dropped or not."""

    def __init__(self, *, max_runs: int, live: int | None = None) -> None:
        self.max_runs = max_runs
        self.live = live
        self.runs = [Run(LARGE, has_large=True)]
        self.rewritten = 0
        # How often the run that was there first, or what became of it, was merged.
        self.large_rewritten = 0

    def flush(self) -> None:
        self.runs.append(Run(YOUNG))
        chosen = plan_run_merge([run.size for run in self.runs], self.max_runs)
        if chosen:
            size = sum(self.runs[index].size for index in chosen)
            has_large = any(self.runs[index].has_large for index in chosen)
            self.rewritten += size
            self.large_rewritten += has_large
            rest = [run for index, run in enumerate(self.runs) if index not in chosen]
            self.runs = [*rest, Run(min(size, self.live or size), has_large)]


@pytest.mark.parametrize("live", [None, LARGE], ids=["growing", "all updates"])
def test_ten_thousand_flushes_rewrite_little_and_leave_few_runs(live: int | None) -> None:
    growth = Growth(max_runs=8, live=live)
    flushes = 10_000
    for _ in range(flushes):
        growth.flush()
        assert len(growth.runs) <= 8
    flushed = flushes * YOUNG
    # Each entry is rewritten a number of times that grows with the logarithm only.
    assert growth.rewritten / flushed < log2((LARGE + flushed) / YOUNG) * 0.6
    # Sixteen times its size was flushed meanwhile.
    assert growth.large_rewritten <= (3 if live is None else 12)


def test_a_thousand_flushes_touch_the_large_run_once() -> None:
    growth = Growth(max_runs=8)
    for _ in range(1000):
        growth.flush()
    assert growth.large_rewritten == 1
    assert growth.rewritten / (1000 * YOUNG) < 6


@given(st.lists(st.integers(0, 10**9), max_size=30), st.integers(0, 12))
@examples(200)
def test_at_most_so_many_runs_are_left_whatever_there_was(sizes: list[int], most: int) -> None:
    chosen = plan_run_merge(sizes, most)
    assert len(set(chosen)) == len(chosen)
    assert set(chosen) <= set(range(len(sizes)))
    if len(sizes) <= max(most, 1):
        assert len(chosen) in {0, 1}
    else:
        assert len(chosen) >= 2
        assert len(sizes) - len(chosen) + 1 <= max(most, 1)
        # Never a larger one while a smaller one is left alone.
        largest = max(sizes[index] for index in chosen)
        left = [size for index, size in enumerate(sizes) if index not in chosen]
        assert all(size >= largest for size in left)


def test_few_runs_are_left_alone() -> None:
    assert plan_run_merge([], 8) == ()
    assert plan_run_merge([5] * 8, 8) == ()
    assert plan_run_merge([LARGE, *[YOUNG] * 8], 8) == tuple(range(1, 9))


@pytest.mark.parametrize(
    ("entries", "bits"),
    [
        (0, 0),
        (1, 0),
        (2**20, 0),
        (2**20 + 1, 1),
        (2**21, 1),
        (10_000_000, 4),
        (LARGE, 6),
        (10**9, 10),
        (10**15, 16),
    ],
)
def test_a_bucket_has_about_a_million_entries(entries: int, bits: int) -> None:
    assert plan_bits(entries) == bits


@given(st.lists(st.integers(1, 10_000), max_size=40), st.integers(1, 6), st.integers(0, 5_000))
def test_a_commit_waits_for_a_bounded_merge_unless_there_are_far_too_many_runs(
    sizes: list[int], most: int, entries: int
) -> None:
    chosen = plan_bounded_merge(sizes, most, entries)
    assert len(chosen) != 1
    if len(sizes) <= most:
        assert chosen == ()
    elif len(sizes) > 8 * most:
        assert chosen == plan_run_merge(sizes, most)
    else:
        assert sum(sizes[run] for run in chosen) <= entries


def test_small_runs_are_merged_by_a_commit_and_large_ones_are_not() -> None:
    large = [5_000_000] * 8
    assert plan_bounded_merge([*large, 60_000], 8, 500_000) == ()
    assert plan_bounded_merge([*large, 60_000, 60_000], 8, 500_000) == (8, 9)
    # It would be rewritten for a tenth of itself.
    assert plan_bounded_merge([*large, 400_000, 40_000], 8, 500_000) == ()
