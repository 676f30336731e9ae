"""What follows a failure of one table: decided from the recovery table, without doing it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.clients.defects import as_ours
from frazil.pipeline.recovery import RecoveryAction, recovery_for

if TYPE_CHECKING:
    from frazil.clients.iceberg.commit.retrying import RetryPolicy
    from frazil.hooks import Randomness

# How long a pipeline may be without a process before the one on standby takes over.
STANDBY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """Try again after so many seconds; planning reads what happened to the table."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Standby(RetryAfter):
    """Not a failure: try so soon whether the process that does the work has ended."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Leave the table alone until an operator has acted, and reports it or restarts the process."""


@dataclass(frozen=True, slots=True)
class RetriesExhausted:
    """The attempts are used up, and this process does not wait any longer."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """End the process: another one does the work, or a stop was requested."""


NextStep = RetryAfter | Pause | RetriesExhausted | Fenced


def plan_step(
    error: Exception,
    *,
    failures: int,
    retry: RetryPolicy,
    randomness: Randomness,
    once: bool = False,
) -> NextStep:
    """The next step after this many failures in a row, this one included.

    What is not of our family is a defect, wherever it was raised.
    """
    recovery = recovery_for(as_ours(error))
    is_used_up = failures >= retry.attempts
    match recovery.after_attempts if is_used_up else recovery.action:
        case RecoveryAction.STOP:
            return Fenced()
        case RecoveryAction.NEVER:
            return Pause()
        case RecoveryAction.LATER:
            if once and is_used_up:
                return RetriesExhausted()
            seconds = back_off(failures, retry, randomness)
            if recovery.is_standby:
                return Standby(min(seconds, STANDBY_SECONDS))
            return RetryAfter(seconds)
        case RecoveryAction.NOW | RecoveryAction.INSPECT:
            return RetryAfter(0.0)


def back_off(failures: int, retry: RetryPolicy, randomness: Randomness) -> float:
    """Seconds before the next attempt: a limit that doubles, less a random part of up to half.

    Never next to nothing, as a wait from zero up would be: what is away should not be hammered.
    """
    # Beyond this power every limit is the longest one.
    power = min(failures - 1, 30)
    limit = min(retry.longest_seconds, retry.base_seconds * 2**power)
    return randomness.uniform(limit / 2, limit)
