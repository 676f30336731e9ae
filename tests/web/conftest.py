"""A real browser on our own server, or the reason why there is none."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect, sync_playwright

from frazil.telemetry.metrics import Metrics
from frazil.telemetry.redaction import Redactor
from frazil.web.access import HostRule
from frazil.web.app import build_app
from frazil.web.pages import build_pages
from frazil.web.readiness import Readiness
from frazil.web.server import serving
from tests.support.status.statuses import running
from tools.browser import NO_BROWSER, find_browser

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request

    from frazil.pipeline.status.values import PipelineStatus

# Far above what a busy machine needs for any of it.
PATIENCE_MS = 60_000
# Two views of one page show the same, however long the machine takes between them.
NEVER_SECONDS = 24 * 3600
# Set where a test that was skipped would hide something.
NEEDS_BROWSER = "FRAZIL_NEEDS_BROWSER"


# Not for longer: Playwright leaves a loop of asyncio running, which no other test may meet.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The machine's Chromium. Without one tests are skipped, but not where they must be run."""
    found = find_browser()
    if found is None:
        if os.environ.get("CI") == "true" or os.environ.get(NEEDS_BROWSER):
            pytest.fail(NO_BROWSER, pytrace=False)
        pytest.skip(NO_BROWSER)
    with sync_playwright() as playwright:
        # In a container the browser has no sandbox; it sees nothing but our own page.
        started = playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield started
        started.close()


@dataclass
class Shown:
    """What the server shows, and the browser that views it."""

    browser: Browser
    status: PipelineStatus
    address: str = ""
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    _stack: ExitStack = field(default_factory=ExitStack)

    def now(self) -> PipelineStatus:
        return self.status

    def open(self, path: str = "/", *, width: int = 1180, **more: Any) -> Page:
        """A tab of its own, on the page."""
        context: BrowserContext = self.browser.new_context(
            viewport={"width": width, "height": 900}, **more
        )
        self._stack.callback(context.close)
        context.set_default_timeout(PATIENCE_MS)
        context.on("console", self._hear)
        context.on("weberror", lambda error: self.complaints.append(str(error.error)))
        context.on("request", self._note)
        page = context.new_page()
        page.goto(f"http://{self.address}{path}")
        return page

    def close(self) -> None:
        self._stack.close()

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(message.text)

    def _note(self, request: Request) -> None:
        self.requests.append(request.url)


@pytest.fixture
def token() -> str | None:
    """None, unless a test says otherwise."""
    return None


@pytest.fixture
def refresh_seconds() -> tuple[float, int]:
    """How often a page brings itself up to date, with and without a script: never.

    A test about just that says otherwise, and asserts only what comes true some time.
    """
    return NEVER_SECONDS, NEVER_SECONDS


@pytest.fixture
def shown(
    browser: Browser,
    token: str | None,
    refresh_seconds: tuple[float, int],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Shown]:
    """The real server; a test that leaves a complaint of the browser behind has failed."""
    with_script, without = refresh_seconds
    monkeypatch.setattr("frazil.web.page_rendering.REFRESH_SECONDS", with_script)
    monkeypatch.setattr("frazil.web.page_rendering.RELOAD_SECONDS", without)
    expect.set_options(timeout=PATIENCE_MS)
    held = Shown(browser, running())
    redactor = Redactor()
    pages = build_pages(held.now, redactor, token=token, hosts=HostRule(is_local=True))
    metrics = Metrics("shop", release="1", redactor=redactor)
    app = build_app(metrics, Readiness(), redactor, routes=pages, hosts=HostRule(is_local=True))
    with serving(app, "127.0.0.1:0") as address:
        held.address = str(address)
        yield held
        held.close()
    assert held.complaints == []
    ours = (f"http://{address}/", "data:")
    assert [url for url in held.requests if not url.startswith(ours)] == []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here needs a browser."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.web)
