"""Retries a commit after a conflict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from frazil.errors import CommitConflictError

if TYPE_CHECKING:
    from collections.abc import Callable

    from frazil.hooks import Clock, Randomness


_Done = TypeVar("_Done")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a conflicting commit is tried, and the delay between attempts."""

    attempts: int = 5
    base_seconds: float = 0.5
    longest_seconds: float = 30.0


def repeat_on_conflict(
    attempt: Callable[[], _Done], policy: RetryPolicy, *, clock: Clock, randomness: Randomness
) -> _Done:
    """The result of the first successful attempt; raises the error of the last one.

    Waits with exponential backoff and full jitter.
    """
    for number in range(1, policy.attempts):
        try:
            return attempt()
        except CommitConflictError:
            limit = min(policy.longest_seconds, policy.base_seconds * 2 ** (number - 1))
            clock.sleep(randomness.uniform(0, limit))
    return attempt()
