"""What takes longer than a moment is reported to whoever shows it: a terminal, or nobody.

For people who wait. What operators need to know later is in the log.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    # Is given what is done now, and an empty text when that is over.
    ShowProgress = Callable[[str], None]


class _Progress:
    """One for the process: a terminal has one last line."""

    def __init__(self) -> None:
        self.show: ShowProgress | None = None
        self.now = ""


_progress = _Progress()


@contextmanager
def progress_shown_by(show: ShowProgress | None) -> Iterator[None]:
    """Within the block, this shows what is done; None: nothing does."""
    before, _progress.show = _progress.show, show
    try:
        yield
    finally:
        _progress.show = before


@contextmanager
def doing(what: str) -> Iterator[None]:
    """Report what is done within the block, and afterwards what is done around it."""
    around, _progress.now = _progress.now, what
    _report()
    try:
        yield
    finally:
        _progress.now = around
        _report()


def _report() -> None:
    if _progress.show is not None:
        _progress.show(_progress.now)
