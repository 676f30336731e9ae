"""What a benchmark found, with the machine it was found on."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import psutil

from benchmarks.support.plot import Bar, Group, draw
from frazil.version import __version__

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from benchmarks.support.process_tree import Usage

RESULTS = Path(__file__).parents[1] / "results"
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Series:
    """The seconds of one thing, in the order they were measured."""

    name: str
    seconds: tuple[float, ...]
    cpu_seconds: tuple[float, ...] = ()
    peak_mib: int | None = None
    # Medians of the parts that the program itself measures.
    phases: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        name: str,
        usages: Sequence[Usage],
        phases: Sequence[Mapping[str, float]] = (),
    ) -> Series:
        """Calls that were measured, and the seconds by phase that each of them reported."""
        names = dict.fromkeys(key for each in phases for key in each)
        return cls(
            name,
            tuple(each.seconds for each in usages),
            tuple(each.cpu_seconds for each in usages),
            max(each.peak_bytes for each in usages) // _MIB,
            {key: round(median(each.get(key, 0.0) for each in phases), 4) for key in names},
        )

    @property
    def middle(self) -> float:
        """The median."""
        return median(self.seconds)


class _Bounded:
    """A number that should not be above one bound, and must not be above another."""

    __slots__ = ()

    @staticmethod
    def verdict(number: float, at_most: float | None, must: float | None) -> str:
        """The verdict, or none where nothing was promised."""
        if at_most is None:
            return ""
        if number <= at_most:
            return "goal met"
        return "required met, goal missed" if must is not None and number <= must else "missed"


@dataclass(frozen=True, slots=True)
class Comparison:
    """One result of ours, another of the same run, and what we aim for.

    ``at_most`` is the goal for the ratio and ``must`` what has to hold.
    """

    ours: Series
    baseline: Series
    goal: str
    at_most: float | None = None
    must: float | None = None

    @property
    def ratio(self) -> float:
        """Ours by the other: above one, ours takes longer."""
        return self.ours.middle / self.baseline.middle

    @property
    def spread(self) -> tuple[float, float]:
        """The lowest and highest ratio of two neighbours, or of anything where none are."""
        mine, other = self.ours.seconds, self.baseline.seconds
        if len(mine) != len(other):
            return min(mine) / max(other), max(mine) / min(other)
        ratios = [one / two for one, two in zip(mine, other, strict=True)]
        return min(ratios), max(ratios)

    @property
    def verdict(self) -> str:
        """Whether the ratio meets its aim."""
        return _Bounded.verdict(self.ratio, self.at_most, self.must)


@dataclass(frozen=True, slots=True)
class Figure:
    """A number that is not a time, such as bytes for each key."""

    name: str
    value: float
    unit: str
    goal: str = ""
    at_most: float | None = None
    must: float | None = None
    at_least: float | None = None

    @property
    def verdict(self) -> str:
        """Whether it meets its aim."""
        if self.at_least is not None:
            return "goal met" if self.value >= self.at_least else "missed"
        return _Bounded.verdict(self.value, self.at_most, self.must)


@dataclass(frozen=True, slots=True)
class Report:
    """Everything one benchmark found; ``facts`` are seeds, layouts, set-up times.

    ``broken`` is what had to hold and did not: it is reported with all the rest, and the run fails.
    """

    comparisons: tuple[Comparison, ...] = ()
    figures: tuple[Figure, ...] = ()
    facts: Mapping[str, object] = field(default_factory=dict)
    broken: tuple[str, ...] = ()


def print_report(name: str, report: Report) -> None:
    """A table for people."""
    print(name)
    for each in report.comparisons:
        for series in (each.ours, each.baseline):
            print(f"  {series.name:<58} {series.middle:7.3f} s  {_details(series)}")
        low, high = each.spread
        note = f"({low:.3f}–{high:.3f})  goal: {each.goal}"
        print(f"  {_ratio_text(each):<58} {each.ratio:7.3f}    {note}  {each.verdict}".rstrip())
    for figure in report.figures:
        goal = f"goal: {figure.goal}" if figure.goal else ""
        line = f"  {figure.name:<58} {figure.value:7.3f} {figure.unit}  {goal}  {figure.verdict}"
        print(line.rstrip())
    for each_broken in report.broken:
        print(f"  broken: {each_broken}")


def _ratio_text(comparison: Comparison) -> str:
    ratio = comparison.ratio
    return f"ratio, {1 / ratio:.1f} times as fast" if ratio < 1 else "ratio"


def _details(series: Series) -> str:
    spread = f"({min(series.seconds):.3f}–{max(series.seconds):.3f})"
    if not series.cpu_seconds:
        return spread
    memory = "" if series.peak_mib is None else f", peak {series.peak_mib} MiB"
    return f"{spread}  {median(series.cpu_seconds):.2f} s of processor{memory}"


def write_report(name: str, report: Report, folder: Path, *, load_before: float) -> None:
    """JSON for comparisons with an older run, and a picture."""
    folder.mkdir(parents=True, exist_ok=True)
    result = {
        "benchmark": name,
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "cores": os.cpu_count(),
            "memory_gib": round(psutil.virtual_memory().total / 2**30),
            # Of other people's work, and of ours as well.
            "load_before": round(load_before, 2),
            "load_after": round(os.getloadavg()[0], 2),
            "system": platform.platform(terse=True),
        },
        "versions": {
            "python": platform.python_version(),
            "pyspark": version("pyspark"),
            "frazil": __version__,
        },
        "facts": dict(report.facts),
        "comparisons": [
            {**_plain(each), "ratio": each.ratio, "verdict": each.verdict}
            for each in report.comparisons
        ],
        "figures": [{**_plain(each), "verdict": each.verdict} for each in report.figures],
    }
    text = json.dumps({key: value for key, value in result.items() if value}, indent=2)
    (folder / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")
    (folder / f"{name}.svg").write_text(draw(name, _groups(report)), encoding="utf-8")


def _plain(value: Comparison | Figure) -> dict[str, object]:
    """As JSON, without empty fields."""
    # Stored results call the baseline "beside".
    fields = {
        "beside" if name == "baseline" else name: part for name, part in asdict(value).items()
    }
    for name in ("ours", "beside"):
        if name in fields:
            fields[name] = {key: part for key, part in fields[name].items() if part}
    return {key: part for key, part in fields.items() if part not in (None, "")}


def _groups(report: Report) -> list[Group]:
    """All comparisons with one result of ours are a group."""
    together: dict[str, list[Comparison]] = {}
    for each in report.comparisons:
        together.setdefault(each.ours.name, []).append(each)
    groups = [_group(found, together.keys()) for found in together.values()]
    by_unit: dict[str, list[Figure]] = {}
    for figure in report.figures:
        by_unit.setdefault(figure.unit, []).append(figure)
    for unit, figures in by_unit.items():
        bars = [Bar(each.name, each.value, is_ours=True, note=each.goal) for each in figures]
        groups.append(Group(tuple(bars), unit))
    return groups


def _group(comparisons: list[Comparison], mine: Collection[str]) -> Group:
    ours = comparisons[0].ours
    bars = [Bar(ours.name, ours.middle, is_ours=True)]
    for each in comparisons:
        times = 1 / each.ratio
        note = f"{times:.1f}×" if times > 1 else f"{each.ratio:.2f} of it"
        baseline = each.baseline
        bars.append(Bar(baseline.name, baseline.middle, is_ours=baseline.name in mine, note=note))
    return Group(tuple(bars), "s")
