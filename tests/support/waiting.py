"""Waits for what other threads, processes and servers do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.hooks import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable


def wait_until(is_so: Callable[[], bool], seconds: float = 300.0) -> None:
    """By default, far longer than a busy machine needs."""
    clock = SystemClock()
    deadline = clock.monotonic() + seconds
    while not is_so():
        assert clock.monotonic() < deadline
        clock.sleep(0.02)
