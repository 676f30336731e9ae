"""The set-up script, in a copy of the checkout with an installer that fails as real ones do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

# A uv that notes how it was called, makes an environment, and fails with the text of $FAILURE.
UV = """#!/bin/sh
echo "$@" >> "$CALLS"
if [ -n "$FAILURE" ] && [ "$1" = pip ]; then echo "$FAILURE" >&2; exit 2; fi
if [ "$1" = venv ]; then
  for last do :; done
  mkdir -p "$last/bin"
  printf '#!/bin/sh\\ncase "$*" in -c*) exec "%s" "$@";; esac\\n' \\
    "$REAL_PYTHON" > "$last/bin/python"
  echo 'exit ${JARS:-0}' >> "$last/bin/python"
  chmod +x "$last/bin/python"
fi
"""


class Checkout:
    """A checkout as far as the set-up script reads it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "checkout"
        self.calls = folder / "calls"
        self.calls.touch()
        self.root.mkdir()
        for name in ("tools", "requirements"):
            shutil.copytree(ROOT / name, self.root / name)
        shutil.copy(ROOT / "pyproject.toml", self.root)
        commands = folder / "bin"
        commands.mkdir()
        (commands / "uv").write_text(UV)
        (commands / "uv").chmod(0o755)
        self.path = f"{commands}:{os.environ['PATH']}"

    def setup(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        known = {"CALLS": str(self.calls), "REAL_PYTHON": sys.executable, "PATH": self.path}
        return subprocess.run(
            [sys.executable, "tools/bootstrap.py", *arguments],
            cwd=self.root,
            env={**os.environ, **known, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def called(self) -> list[str]:
        return self.calls.read_text().splitlines()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def sentence(finished: subprocess.CompletedProcess[str]) -> str:
    """What was said last; a trace or a second paragraph would show."""
    assert finished.returncode == 1
    assert "Traceback" not in finished.stderr
    return finished.stderr.splitlines()[-1]


def test_a_second_run_calls_no_installer(checkout: Checkout) -> None:
    assert checkout.setup().returncode == 0
    calls = checkout.called()
    assert [call.split()[:2] for call in calls] == [
        ["venv", "--quiet"], ["pip", "install"], ["pip", "sync"], ["pip", "install"],
    ]  # fmt: skip
    finished = checkout.setup()
    assert (finished.returncode, finished.stderr) == (0, "")
    assert checkout.called() == calls


def test_the_demo_installs_less_and_is_content_with_more(checkout: Checkout) -> None:
    def synced() -> list[str]:
        return [call.rpartition("/")[2] for call in checkout.called() if "pip sync" in call]

    assert checkout.setup("demo").returncode == 0
    assert checkout.setup("demo").returncode == 0
    assert synced() == ["demo.lock"]
    assert checkout.setup("demo-kafscale").returncode == 0
    assert checkout.setup("demo").returncode == 0
    assert synced() == ["demo.lock", "demo-kafscale.lock"]
    assert checkout.setup().returncode == 0
    assert checkout.setup("demo").returncode == 0
    assert checkout.setup("demo-kafscale").returncode == 0
    assert synced() == ["demo.lock", "demo-kafscale.lock", "all.lock"]


def test_a_demo_leaves_nothing_in_a_cache(checkout: Checkout) -> None:
    def caches() -> set[bool]:
        return {"--cache-dir" in call for call in checkout.called() if call.startswith("pip")}

    checkout.setup()
    assert caches() == {False}
    (checkout.root / ".venv" / ".frazil-setup").unlink()
    passing = checkout.root / ".tools" / "cache"
    passing.mkdir()
    checkout.setup("demo")
    assert caches() == {False, True}
    assert not passing.exists()


def test_packages_are_installed_by_hash(checkout: Checkout) -> None:
    checkout.setup()
    for call in checkout.called():
        is_ours = "--editable" in call
        assert call.startswith("venv") or is_ours or "--require-hashes" in call


def test_a_changed_lock_is_installed(checkout: Checkout) -> None:
    checkout.setup()
    before = len(checkout.called())
    with (checkout.root / "requirements" / "all.lock").open("a") as lock:
        lock.write("\n# changed\n")
    assert checkout.setup().returncode == 0
    assert len(checkout.called()) > before


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (
            "error: Request failed after 3 retries\n  Caused by: dns error: lookup failed",
            "setup: the build tools were not installed: the package registry cannot be reached "
            "(.tools/setup.log has the details).",
        ),
        (
            "error: No matching distribution",
            "setup: the build tools were not installed (.tools/setup.log has the details).",
        ),
    ],
)
def test_a_failed_installation_is_one_sentence(
    checkout: Checkout, failure: str, expected: str
) -> None:
    assert sentence(checkout.setup(FAILURE=failure)) == expected
    assert failure in (checkout.root / ".tools" / "setup.log").read_text()


def test_a_full_disk_is_one_sentence(checkout: Checkout) -> None:
    failure = "error: failed to write: No space left on device (os error 28)"
    said = sentence(checkout.setup(FAILURE=failure))
    assert said.startswith("setup: the build tools were not installed: the disk is full, ")


def test_a_failed_run_is_taken_up_by_the_next(checkout: Checkout) -> None:
    checkout.setup(FAILURE="boom")
    assert checkout.setup().returncode == 0


def test_jars_that_could_not_be_fetched_end_the_setup(checkout: Checkout) -> None:
    assert checkout.setup(JARS="1").returncode == 1
