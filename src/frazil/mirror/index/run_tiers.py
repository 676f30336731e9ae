"""Which runs of an index become one, and into how many buckets a run is split."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# Ten to twenty megabytes in the store: enough for a request, few enough to decode at once.
_BUCKET_ENTRIES = 1 << 20
# Parts are listed in the head; nobody has a thousand million entries for each of these.
_MOST_BITS = 16


def plan_run_merge(sizes: Sequence[int], max_runs: int) -> tuple[int, ...]:
    """The runs to merge into one so that at most ``max_runs`` are left, by their place; or none.

    Small runs are merged among themselves, and a larger one joins only when what is merged has
    grown to a good part of it. With eight runs an entry is so rewritten fewer than log2(S) times
    while the whole grows to S times the smallest run; with fewer runs it is more often.
    """
    if len(sizes) <= max_runs:
        return ()
    order = sorted(range(len(sizes)), key=lambda place: sizes[place])
    # Neighbouring tiers differ by this factor when all of them are to fit.
    tier = (sum(sizes) / max(sizes[order[0]], 1)) ** (1 / max(max_runs, 1))
    # One below half a tier would hardly ever join, and the small ones be rewritten without end.
    reach = max(tier / 2, 1.0)
    count = max(len(sizes) - max(max_runs, 1) + 1, 2)
    merged = sum(sizes[place] for place in order[:count])
    while count < len(order) and sizes[order[count]] <= reach * merged:
        merged += sizes[order[count]]
        count += 1
    return tuple(sorted(order[:count]))


def plan_bits(entries: int) -> int:
    """How many bits of the hash number the buckets: none below a million entries."""
    return min(max((entries - 1) // _BUCKET_ENTRIES, 0).bit_length(), _MOST_BITS)
