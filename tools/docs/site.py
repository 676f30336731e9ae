"""Build the documentation site: every link and anchor leads somewhere, and nothing is fetched.

With ``--check``, build it aside, keep nothing, and print only what is wrong.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "site"
# What a browser requests by itself when it shows a page or applies a style.
FETCHED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio)\b[^>]*?\bsrc=["']?(?:https?:)?//[^"'\s>]+"""
    r"""|<link\b(?![^>]*\brel=["']?canonical)[^>]*?\bhref=["']?(?:https?:)?//[^"'\s>]+"""
    r"""|@import\s[^;]*//[^;]+|url\(["']?(?:https?:)?//[^)]+"""
)


def main(arguments: list[str]) -> int:
    """Exit 1 with every warning of the build, or with every page that needs another host."""
    if "--check" not in arguments:
        return build(SITE)
    with tempfile.TemporaryDirectory(prefix="frazil-site-") as folder:
        return build(Path(folder))


def build(target: Path) -> int:
    """Build into this folder."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target)]
    # The theme's own notice is no warning of ours.
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if built.returncode:
        lines = [line for line in built.stderr.splitlines() if not line.startswith("INFO")]
        print("\n".join(lines), file=sys.stderr)
        return 1
    fetched = external_fetches(target)
    for line in fetched:
        print(f"docs: {line}", file=sys.stderr)
    return 1 if fetched else 0


def external_fetches(site: Path) -> list[str]:
    """Where a page or a style makes a browser contact another host."""
    found = []
    for file in sorted(site.rglob("*")):
        if file.suffix in {".html", ".css"}:
            text = file.read_text(encoding="utf-8")
            name = file.relative_to(site)
            found += [f"{name} fetches {match[0][-80:]}" for match in FETCHED.finditer(text)]
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
