"""What a benchmark found, with the machine it was found on."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median

import psutil

from frazil.version import __version__

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Series:
    """The seconds of one thing, in the order they were measured."""

    name: str
    seconds: tuple[float, ...]

    @property
    def middle(self) -> float:
        """The median."""
        return median(self.seconds)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One thing of ours beside another of the same run, and what we aim for."""

    ours: Series
    beside: Series
    goal: str

    @property
    def ratio(self) -> float:
        """Ours by the other: above one, ours takes longer."""
        return self.ours.middle / self.beside.middle


@dataclass(frozen=True, slots=True)
class Report:
    """Everything one benchmark compared."""

    comparisons: tuple[Comparison, ...]


def print_report(name: str, report: Report) -> None:
    """A table for people."""
    print(name)
    for each in report.comparisons:
        for series in (each.ours, each.beside):
            spread = f"{min(series.seconds):.2f}–{max(series.seconds):.2f}"
            print(f"  {series.name:<58} {series.middle:6.2f} s  ({spread})")
        print(f"  {'ratio':<58} {each.ratio:6.2f}    goal: {each.goal}")


def write_report(name: str, report: Report) -> None:
    """JSON for whoever compares with an older run."""
    RESULTS.mkdir(exist_ok=True)
    result = {
        "benchmark": name,
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "cores": os.cpu_count(),
            "memory_gib": round(psutil.virtual_memory().total / 2**30),
            "load_before": os.getloadavg()[1],
            "system": platform.platform(terse=True),
        },
        "versions": {
            "python": platform.python_version(),
            "pyspark": version("pyspark"),
            "frazil": __version__,
        },
        "comparisons": [{**asdict(each), "ratio": each.ratio} for each in report.comparisons],
    }
    text = json.dumps(result, indent=2, ensure_ascii=False)
    (RESULTS / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")
