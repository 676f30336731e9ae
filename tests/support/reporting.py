"""What a run of the tests prints while it lasts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


class FailuresAtOnce:
    """Prints a failure when it happens: a log that is cut has no summary."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if not report.failed or reporter is None:
            return
        crash = getattr(report.longrepr, "reprcrash", None)
        reason = "" if crash is None else crash.message.partition("\n")[0][:300]
        reporter.write("\n")
        reporter.write_line(f"FAILED in {report.when}: {report.nodeid} - {reason}", red=True)
        reporter.flush()
