"""A process with a merge loop over one made-up table, for tests that send it signals.

``python stopping_worker.py KIND GRACE``: the table is ``idle``, merges ``batches`` without end, or
``hangs``. The first batch lasts until the process is asked to stop. Prints a line when it works,
when it is asked, and when it ends.
"""

from __future__ import annotations

import sys
import threading
from datetime import timedelta
from typing import TYPE_CHECKING

from frazil.cli.process.stop_signals import StopSignals
from frazil.cli.process.supervising import supervise
from frazil.pipeline.loops.loop import StopRequest
from frazil.pipeline.loops.merge_loop import MergeLoop
from tests.support.merge.scripted import report_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from frazil.merge.report import MergeReport


def say(text: str) -> None:
    """A line that the test reads at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class AnnouncedStop(StopRequest):
    """The request to stop, printed for the test before it takes effect."""

    def __init__(self) -> None:
        super().__init__()
        self.said = threading.Event()

    def set(self) -> None:
        super().set()
        if not self.said.is_set():
            say("stopping")
            self.said.set()


class Table:
    """One of the three kinds."""

    def __init__(self, kind: str, stop: AnnouncedStop) -> None:
        self._kind = kind
        self._stop = stop
        self._interrupted = threading.Event()

    def merge(self, *, stop: Callable[[], bool]) -> MergeReport:
        """Works until stopped, or for ever, or not at all."""
        batches = 0
        say("working")
        if self._kind == "hangs":
            self._interrupted.wait()
            raise RuntimeError("the session was taken away")
        while self._kind == "batches" and not stop():
            batches += 1
            say(f"batch {batches} begins")
            self._stop.said.wait()
            say(f"batch {batches} done")
        return report_of("users", batches)

    def interrupt(self) -> None:
        """Take away what a hanging merge waits for."""
        say("interrupted")
        self._interrupted.set()


def main(kind: str, grace: float) -> int:
    """Run until a signal comes."""
    stop = AnnouncedStop()
    table = Table(kind, stop)
    with StopSignals() as signals:
        loop = MergeLoop(
            {"users": table},
            interval=timedelta(hours=1),
            stop=stop,
            on_report=lambda _table, report, _seconds: say(f"{len(report.commits)} commits"),
            on_error=lambda _table, error, *_: say(f"failed {error}"),
        )
        ending = supervise(
            loop,
            once=False,
            stop=stop,
            signals=signals,
            grace=timedelta(seconds=grace),
            interrupt=table.interrupt,
        )
        say(f"ended: {ending}")
        return signals.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2])))
