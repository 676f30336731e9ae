"""Find the machine's Chromium; run as a program, say in one sentence that there is none."""

from __future__ import annotations

import shutil
import sys

NO_BROWSER = (
    "Chromium is not installed: install it first, on Debian and Ubuntu with "
    "apt-get install --no-install-recommends chromium"
)
_NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_browser() -> str | None:
    """Its path, by whichever name it has."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


if __name__ == "__main__":
    sys.exit(None if find_browser() else NO_BROWSER)
