"""Random histories merged for real, for as long as the budget lasts."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.deep, pytest.mark.spark]

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.fault("E2", "E4", "T2", "N13")
def test_every_merge_of_every_history_leaves_what_a_replay_in_dictionaries_leaves(
    tmp_path: Path,
) -> None:
    budget = float(os.environ.get("FRAZIL_DEEP_SECONDS", "60")) / 2
    seed = int(os.environ.get("FRAZIL_SEED", time.time_ns() % 2**32))
    print(f"FRAZIL_SEED={seed}")  # noqa: T201
    # In a process of its own: a reader that meets a file it does not understand may abort.
    program = [sys.executable, "-X", "faulthandler", "-m", "tests.support.merge.hunt"]
    finished = subprocess.run(
        [*program, str(budget), str(seed), str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    print(finished.stdout)  # noqa: T201
    replays = [file.read_text() for file in sorted(tmp_path.glob("*.json"))]
    assert finished.returncode == 0, "\n".join([finished.stdout, *replays])
