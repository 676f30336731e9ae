"""Decides which runs of an index are merged, and into how many buckets a run is split."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# Ten to twenty megabytes in the store: worth a request, small enough to decode in one step.
_BUCKET_ENTRIES = 1 << 20
# Parts are listed in the head; this is enough for any realistic number of entries.
_MOST_BITS = 16


def plan_run_merge(sizes: Sequence[int], max_runs: int) -> tuple[int, ...]:
    """The indices of the runs to merge so that at most ``max_runs`` are left; or none.

    Small runs are merged with each other, and a larger one joins only when the merged ones have
    grown to a good part of its size. With eight runs an entry is rewritten fewer than log2(S) times
    while the index grows to S times the smallest run; with fewer runs it is more often.
    """
    if len(sizes) <= max_runs:
        return ()
    order = sorted(range(len(sizes)), key=lambda run: sizes[run])
    # Sizes of neighbouring tiers differ by this factor.
    tier = (sum(sizes) / max(sizes[order[0]], 1)) ** (1 / max(max_runs, 1))
    # With a smaller reach, large runs would rarely join, and small ones be rewritten repeatedly.
    reach = max(tier / 2, 1.0)
    count = max(len(sizes) - max(max_runs, 1) + 1, 2)
    merged = sum(sizes[run] for run in order[:count])
    while count < len(order) and sizes[order[count]] <= reach * merged:
        merged += sizes[order[count]]
        count += 1
    return tuple(sorted(order[:count]))


def plan_bits(entries: int) -> int:
    """How many bits of the hash number the buckets: none below a million entries."""
    return min(max((entries - 1) // _BUCKET_ENTRIES, 0).bit_length(), _MOST_BITS)
