"""Take the pictures of the status page that the documentation shows.

Needs Chromium on the machine; the page is served by our own server from a status made up for it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from playwright.sync_api import sync_playwright

from frazil.telemetry.metrics import Metrics
from frazil.telemetry.redaction import Redactor
from frazil.web.access import HostRule
from frazil.web.app import build_app
from frazil.web.pages import build_pages
from frazil.web.readiness import Readiness
from frazil.web.server import serving
from tests.support.status.statuses import running, stopped
from tools.browser import NO_BROWSER, find_browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ViewportSize

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "images"
# Larger ones make a clone of the repository slow.
LARGEST_BYTES = 200_000
DESKTOP: ViewportSize = {"width": 1120, "height": 1090}
# Without coloured edges of letters a picture has half the size.
ARGUMENTS = ["--no-sandbox", "--disable-lcd-text"]
PHONE: ViewportSize = {"width": 390, "height": 844}


def main() -> int:
    """Write docs/images/status-page*.png; exit 1 when one is too large."""
    chromium = find_browser()
    if chromium is None:
        sys.exit(NO_BROWSER)
    redactor = Redactor()
    hosts = HostRule(is_local=True)
    shown = [running()]
    pages = build_pages(lambda: shown[0], redactor, token=None, hosts=hosts)
    metrics = Metrics("shop", release="1", redactor=redactor)
    app = build_app(metrics, Readiness(), redactor, routes=pages, hosts=hosts)
    with serving(app, "127.0.0.1:0") as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        url = f"http://{address}/"
        taken = [
            take(browser, url, "status-page.png", scheme="light", size=DESKTOP, opened=1),
            take(browser, url, "status-page-phone.png", scheme="light", size=PHONE),
        ]
        shown[0] = stopped()
        taken.append(take(browser, url, "status-page-dark.png", scheme="dark", size=DESKTOP))
        browser.close()
    large = [file.name for file in taken if file.stat().st_size > LARGEST_BYTES]
    for file in taken:
        print(f"{file.name}: {file.stat().st_size:,} bytes")
    return 1 if large else 0


def take(
    browser: Browser,
    url: str,
    name: str,
    *,
    scheme: Literal["light", "dark"],
    size: ViewportSize,
    opened: int | None = None,
) -> Path:
    """One picture of the page as first shown, perhaps with one table opened."""
    context = browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce")
    page = context.new_page()
    page.goto(url)
    if opened is not None:
        page.locator("details").nth(opened).evaluate("(each) => { each.open = true }")
    file = FOLDER / name
    page.screenshot(path=file)
    context.close()
    return file


if __name__ == "__main__":
    sys.exit(main())
