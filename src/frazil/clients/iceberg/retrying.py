"""Trying a commit again when somebody else was faster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.errors import CommitConflictError

if TYPE_CHECKING:
    from collections.abc import Callable

    from frazil.clients.iceberg.strict_commit import Receipt
    from frazil.seams import Clock, Randomness


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a refused commit is repeated, and how long between."""

    attempts: int = 5
    base_seconds: float = 0.5
    longest_seconds: float = 30.0


def repeat_on_conflict(
    attempt: Callable[[], Receipt], policy: RetryPolicy, *, clock: Clock, randomness: Randomness
) -> Receipt:
    """The receipt of the first attempt that lands; the last one's error is the caller's.

    Waits a random part of a doubling limit, so that rivals do not meet again.
    """
    for number in range(1, policy.attempts):
        try:
            return attempt()
        except CommitConflictError:
            limit = min(policy.longest_seconds, policy.base_seconds * 2 ** (number - 1))
            clock.sleep(randomness.uniform(0, limit))
    return attempt()
