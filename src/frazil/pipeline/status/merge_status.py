"""The state of one table of the merge loop, as pages and commands show it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from frazil.errors import FrazilError
from frazil.pipeline.status.problems import cause_of_error

if TYPE_CHECKING:
    from datetime import datetime

    from frazil.merge.report import MergeReport


class MergeStep(StrEnum):
    """What the loop does with a table."""

    WAITING = "waiting"
    """Until its next run; with an error, until it is tried again."""
    MERGING = "merging"
    STOPPED = "stopped"
    """Not tried again before an operator reports it repaired, or restarts the process."""
    DONE = "done"
    """Merged, and no more was requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeStatus:
    """One table at one moment.

    ``error`` is that of the last run, if it failed; ``failures`` counts the runs that failed in a
    row. ``report`` is that of the last run that did not fail. ``since`` is when the phase began.
    """

    table: str
    phase: MergeStep
    since: datetime
    next_run: datetime | None = None
    report: MergeReport | None = None
    error: Exception | None = None
    failures: int = 0

    @property
    def code(self) -> str | None:
        """The code of the error, if it is one of ours."""
        return None if self.error is None else cause_of_error(self.error).code

    @property
    def reason(self) -> str | None:
        """What went wrong, in a sentence; may name anything but rows, so it is redacted later."""
        if self.error is None or isinstance(self.error, FrazilError):
            return None if self.error is None else str(self.error)
        return cause_of_error(self.error).reason

    @property
    def remedy(self) -> str | None:
        """What an operator does about it."""
        return None if self.error is None else cause_of_error(self.error).remedy
