"""A thousand merges with maintenance on: nothing grows that must not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.deep, pytest.mark.spark, pytest.mark.timeout(0)]


def test_tables_index_and_memory_are_as_large_after_a_thousand_merges(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "endurance", "--results", str(tmp_path)]

    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert finished.returncode == 0, finished.stderr[-4000:]
    found = json.loads((tmp_path / "endurance.json").read_text(encoding="utf-8"))
    # Times are for a quiet machine, and for the record: the benchmark prints them.
    grown = [each["name"] for each in found["figures"] if each["verdict"] != "goal met"]
    assert grown == []
    assert found["facts"]["maintenance"]["compactions"] > 0
