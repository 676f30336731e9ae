"""What a run of the tests prints: failures when they happen, and at its end the slowest files."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

# Files that took less are not listed.
SLOW_SECONDS = 30.0


class RunReporting:
    """A plugin of the process that gets the reports of all workers."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A log that is cut has no summary: a failure is printed at once."""
        self._seconds[report.nodeid.partition("::")[0]] += report.duration
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if not report.failed or reporter is None:
            return
        crash = getattr(report.longrepr, "reprcrash", None)
        reason = "" if crash is None else crash.message.partition("\n")[0][:300]
        reporter.write("\n")
        reporter.write_line(f"FAILED in {report.when}: {report.nodeid} - {reason}", red=True)
        reporter.flush()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The order of the list in ``tests/conftest.py``."""
        slow = [each for each in self._seconds.items() if each[1] >= SLOW_SECONDS]
        if slow:
            terminalreporter.section("slowest files")
        for name, seconds in sorted(slow, key=lambda each: -each[1]):
            terminalreporter.write_line(f"{seconds:7.0f} s  {name}")
