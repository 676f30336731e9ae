"""Hooks for uncaught exceptions: log a redacted stack trace, and send a report."""

from __future__ import annotations

import logging
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from frazil.telemetry.logs import EventLog


def install_hooks(
    log: EventLog, report: Callable[[BaseException], None] | None = None
) -> Callable[[], None]:
    """Log uncaught exceptions of every thread instead of letting Python print them.

    ``report`` is called with each of them first. Returns a function that puts the old hooks back.
    """
    old = sys.excepthook, threading.excepthook, sys.unraisablehook
    hooks = _ExceptionHooks(log, report)
    sys.excepthook = hooks.of_process
    threading.excepthook = hooks.of_thread
    sys.unraisablehook = hooks.of_finalizer

    def undo() -> None:
        sys.excepthook, threading.excepthook, sys.unraisablehook = old

    return undo


class _ExceptionHooks:
    def __init__(self, log: EventLog, report: Callable[[BaseException], None] | None) -> None:
        self._log = log
        self._report = report

    def of_process(
        self, _kind: type[BaseException], error: BaseException, _trace: TracebackType | None
    ) -> None:
        self._write("uncaught exception", error, {})

    def of_thread(self, args: threading.ExceptHookArgs) -> None:
        # Leaving a thread by SystemExit is not an accident; Python ignores it too.
        if args.exc_value is None or isinstance(args.exc_value, SystemExit):
            return
        name = args.thread.name if args.thread is not None else None
        self._write("uncaught exception in thread", args.exc_value, {"thread": name})

    def of_finalizer(self, args: sys.UnraisableHookArgs) -> None:
        if args.exc_value is not None:
            # The object itself stays out: its repr may run any code.
            self._write("exception ignored", args.exc_value, {"where": args.err_msg})

    def _write(self, event: str, error: BaseException, fields: dict[str, object]) -> None:
        # Ctrl-C is the user's decision, not a fault to report.
        if self._report is not None and isinstance(error, Exception):
            self._report(error)
        self._log.write(logging.CRITICAL, event, fields, trace=error)
