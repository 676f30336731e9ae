"""Files bent at random for as long as the budget lasts."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.deep

ROOT = Path(__file__).resolve().parents[2]


def test_no_bent_file_makes_the_codec_fail_in_any_other_way_than_by_refusing_it() -> None:
    budget = float(os.environ.get("FRAZIL_DEEP_SECONDS", "60")) / 2
    seed = int(os.environ.get("FRAZIL_SEED", time.time_ns() % 2**32))
    print(f"FRAZIL_SEED={seed}")  # noqa: T201
    # In a process of its own: the codec hands bytes to C code, and a crash is a signal.
    program = [sys.executable, "-X", "faulthandler", "-m", "tests.support.codec.fuzz"]
    finished = subprocess.run(
        [*program, str(budget), str(seed)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    print(finished.stdout)  # noqa: T201
    assert finished.returncode == 0, finished.stdout + finished.stderr
    # Both, or the bending was too strong or too weak to test anything.
    for kind in ("bend_vector", "bend_puffin", "bend_position_deletes", "bend_messages"):
        assert f"{kind} refused" in finished.stdout
        assert f"{kind} still right" in finished.stdout
