"""Benchmarks are run by hand and rot unseen: small ones run here, and check their own results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.support.change_feed import ChangeFeed
from benchmarks.support.plot import Bar, Group, draw
from benchmarks.support.report import Comparison, Figure, Series

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[3]


# All of them together take minutes, which the long suites have.
@pytest.mark.deep
@pytest.mark.timeout(1200)
def test_every_benchmark_runs_small_and_leaves_figures_and_a_picture(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "--size", "small", "--results", str(tmp_path)]

    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert finished.returncode == 0, finished.stderr[-4000:]
    for name in BENCHMARKS:
        found = json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))
        assert found["benchmark"] == name
        assert found.get("comparisons") or found.get("figures")
        ET.parse(tmp_path / f"{name}.svg")  # noqa: S314 - drawn by ourselves


def test_a_benchmark_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["merge-sideways"]) == 2
    assert "merge-flat" in capsys.readouterr().err


def test_changes_are_four_fifths_updates_and_never_meet_a_row_that_is_gone() -> None:
    feed = ChangeFeed(1_000, seed=1)
    live = set(range(1_000))
    for _ in range(20):
        changes = feed.draw(100).to_pylist()
        assert len({each["n"] for each in changes}) == 100
        by_operation = {
            name: {each["n"] for each in changes if each["operation"] == name}
            for name in ("UPDATE", "INSERT", "DELETE")
        }
        assert [len(found) for found in by_operation.values()] == [80, 10, 10]
        assert by_operation["UPDATE"] | by_operation["DELETE"] <= live
        assert not by_operation["INSERT"] & live
        live = (live | by_operation["INSERT"]) - by_operation["DELETE"]
        assert feed.live == len(live)


def test_a_ratio_is_judged_by_its_goal_and_by_what_is_required() -> None:
    def compared(ours: float) -> str:
        mine, other = Series("ours", (ours,)), Series("other", (10.0,))
        return Comparison(mine, other, goal="", at_most=0.2, must=0.5).verdict

    assert compared(1.0) == "goal met"
    assert compared(4.0) == "required met, goal missed"
    assert compared(6.0) == "missed"
    assert Figure("size", 3.0, "bytes").verdict == ""
    assert Figure("rate", 3.0, "rows/s", at_least=2.0).verdict == "goal met"
    assert Figure("rate", 3.0, "rows/s", at_least=4.0).verdict == "missed"


def test_bars_are_drawn_on_powers_of_ten_and_names_are_escaped() -> None:
    bars = (Bar("ours & <theirs>", 0.1, is_ours=True), Bar("other", 10.0, is_ours=False))

    picture = ET.fromstring(draw("title", [Group(bars, "s")]))  # noqa: S314 - drawn by ourselves

    texts = ["".join(each.itertext()) for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    widths = [
        float(each.attrib["width"])
        for each in picture.iter("{http://www.w3.org/2000/svg}rect")
        if each.attrib["class"] in {"ours", "other"}
    ]
    assert "ours & <theirs>" in texts
    # From 0.01 to 10 there are three steps: the first bar is one of them, the second all three.
    assert widths[1] == pytest.approx(3 * widths[0], abs=0.5)
