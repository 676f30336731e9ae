"""Trying a commit again when somebody else was faster."""

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
    """How often a refused commit is repeated, and how long between."""

    attempts: int = 5
    base_seconds: float = 0.5
    longest_seconds: float = 30.0


def repeat_on_conflict(
    attempt: Callable[[], _Done], policy: RetryPolicy, *, clock: Clock, randomness: Randomness
) -> _Done:
    """What the first attempt that lands gives; the last one's error is the caller's.

    Waits a random part of a doubling limit, so that rivals do not meet again.
    """
    for number in range(1, policy.attempts):
        try:
            return attempt()
        except CommitConflictError:
            limit = min(policy.longest_seconds, policy.base_seconds * 2 ** (number - 1))
            clock.sleep(randomness.uniform(0, limit))
    return attempt()
