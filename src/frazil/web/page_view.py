"""What the page shows, computed from a status: marks, sentences, plots and remedies; pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from frazil.errors import leaves
from frazil.model.humanize import UNKNOWN, duration, rate
from frazil.pipeline.status.values import Phase
from frazil.pipeline.status.wording import freshness, headline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from frazil.pipeline.status.values import PipelineStatus, ProblemStatus, TableStatus

    _Value = tuple[datetime, float | None]

# The page stretches a plot, so that its units mean nothing; texts are next to it in HTML, where
# they keep their size.
WIDTH: Final = 600
HEIGHT: Final = 120
# Numbers that read well on a scale, also when they are halved, times a power of ten.
_STEPS: Final = (1, 1.5, 2, 3, 4, 5, 6, 8, 10)

_Point = tuple[float, float]

_MEANINGS: Final = {leaf.code: leaf.meaning for leaf in leaves()}
_COMMAND: Final = "frazil "
_NO_TABLES: Final = "Spark needs a few seconds. Tables appear here as soon as they are known."
_NOT_KNOWN: Final = "They appear here as soon as the source has listed them."
_MINUTE: Final = 60


class Tone(StrEnum):
    """How urgent something is; each has a shape and a text as well as a colour."""

    CALM = "calm"
    BUSY = "busy"
    WARNING = "warning"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Advice:
    """A remedy: one command to copy, or a sentence with commands in it."""

    command: str | None
    parts: tuple[tuple[bool, str], ...]
    """Each with whether it is a command."""


@dataclass(frozen=True, slots=True)
class Difficulty:
    """A problem and what it is about."""

    about: str
    tone: Tone
    problem: ProblemStatus
    advice: Advice


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a bar, in percent of its width."""

    name: str
    seconds: float
    start: float
    width: float


@dataclass(frozen=True, slots=True)
class Plot:
    """``line`` and ``area`` are paths; ``top`` is the value at the upper edge."""

    line: str
    area: str
    top: float
    seconds: float
    """From its left to its right edge."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A plot with its texts; without a plot there is nothing to draw yet."""

    title: str
    value: str
    plot: Plot | None
    top: str
    span: str
    description: str
    """The same for who cannot see it."""


@dataclass(frozen=True, slots=True)
class ErrorCount:
    """How often an error came up, and what it means."""

    code: str
    count: int
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PageView:
    """Everything the template needs besides the status itself."""

    headline: str
    subline: str
    tone: Tone
    title: str
    difficulties: tuple[Difficulty, ...]
    charts: tuple[Chart, ...]
    errors: tuple[ErrorCount, ...]


def view_of(status: PipelineStatus) -> PageView:
    """The view of a status whose texts were redacted before."""
    line = headline(status)
    lag = status.lag_seconds
    behind = "" if lag is None else f"{duration(lag)} behind · "
    return PageView(
        headline=line,
        subline=_subline(status),
        tone=_tone(status),
        title=f"{line} · {status.pipeline}"
        if status.action_required
        else f"{behind}{status.pipeline}",
        difficulties=tuple(_difficulties(status)),
        charts=_charts(status),
        errors=tuple(
            ErrorCount(code, count, _MEANINGS.get(code, ""))
            for code, count in sorted(status.errors.items())
        ),
    )


def table_tone(table: TableStatus) -> Tone:
    """How urgent a table is."""
    if table.phase is Phase.STOPPED:
        return Tone.STOPPED
    if table.trouble is not None:
        return Tone.WARNING
    return Tone.BUSY if table.phase in {Phase.COPYING, Phase.MERGING} else Tone.CALM


def advice_of(remedy: str) -> Advice:
    """Find the commands in a remedy; backticks mark them."""
    plain = remedy.strip()
    if plain.startswith(_COMMAND) and "`" not in plain and "\n" not in plain:
        return Advice(plain, ())
    pieces = plain.split("`")
    # A backtick without its partner is text.
    if len(pieces) % 2 == 0:
        pieces = [plain]
    return Advice(
        None, tuple((number % 2 == 1, piece) for number, piece in enumerate(pieces) if piece)
    )


def shares_of(phases: Mapping[str, float]) -> tuple[Share, ...]:
    """The parts of a merge, side by side."""
    total = sum(phases.values())
    shares, start = [], 0.0
    for name, seconds in phases.items():
        width = 100 * seconds / total if total > 0 else 0.0
        shares.append(Share(name, seconds, round(start, 2), round(width, 2)))
        start += width
    return tuple(shares)


def _subline(status: PipelineStatus) -> str:
    if not status.tables:
        return _NO_TABLES if status.source is None else _NOT_KNOWN
    return freshness(status) or "Only a running process knows how far readers are behind."


def _tone(status: PipelineStatus) -> Tone:
    tones = [table_tone(each) for each in status.tables]
    if status.action_required:
        return Tone.STOPPED
    if Tone.WARNING in tones or (status.source is not None and status.source.trouble is not None):
        return Tone.WARNING
    return Tone.CALM if status.tables else Tone.BUSY


def _difficulties(status: PipelineStatus) -> Sequence[Difficulty]:
    found = []
    if status.source is not None and status.source.trouble is not None:
        tone = Tone.STOPPED if status.source.action_required else Tone.WARNING
        found.append(_difficulty("the source", tone, status.source.trouble))
    of_tables = [
        _difficulty(each.table, table_tone(each), each.trouble)
        for each in status.tables
        if each.trouble is not None
    ]
    # What needs an operator comes first.
    of_tables.sort(key=lambda each: each.tone is not Tone.STOPPED)
    return [*found, *of_tables]


def _difficulty(about: str, tone: Tone, problem: ProblemStatus) -> Difficulty:
    return Difficulty(about, tone, problem, advice_of(problem.remedy))


def _charts(status: PipelineStatus) -> tuple[Chart, ...]:
    lags = [(each.at, each.lag_seconds) for each in status.samples]
    rates: list[_Value] = [(each.at, each.changes_per_second) for each in status.samples]
    return (
        _chart("Lag", lags, duration, newest=status.lag_seconds),
        _chart("Rows a second", rates, rate, newest=rates[-1][1] if rates else None),
    )


def _chart(
    title: str, values: Sequence[_Value], text: Callable[[float], str], *, newest: float | None
) -> Chart:
    plot = draw_plot(values)
    value = UNKNOWN if newest is None else text(newest)
    if plot is None:
        return Chart(title, value, None, "", "", f"{title}: {value}")
    span = duration(_coarse(plot.seconds))
    most = max(each for _, each in values if each is not None)
    description = f"{title} over the last {span}: now {value}, at most {text(most)}"
    return Chart(title, value, plot, text(plot.top), span, description)


def _coarse(seconds: float) -> float:
    """Rounded to minutes where there are several: the edge of a plot is no measurement."""
    return round(seconds / _MINUTE) * _MINUTE if seconds > 2 * _MINUTE else seconds


def draw_plot(values: Sequence[tuple[datetime, float | None]]) -> Plot | None:
    """The values from left to right, with a gap where one is unknown; None without two of them."""
    known = [value for _, value in values if value is not None]
    if len(known) < 2:  # noqa: PLR2004 - a line has two ends
        return None
    begin, end = values[0][0], values[-1][0]
    seconds = (end - begin).total_seconds()
    if seconds <= 0:
        return None
    top = rounded_up(max(known))
    pieces: list[list[_Point]] = [[]]
    for at, value in values:
        if value is None:
            pieces.append([])
            continue
        across = (at - begin).total_seconds() / seconds * WIDTH
        pieces[-1].append((across, HEIGHT - value / top * HEIGHT))
    drawn = [piece for piece in pieces if piece]
    return Plot(
        line=" ".join(_line(piece) for piece in drawn),
        area=" ".join(_area(piece) for piece in drawn),
        top=top,
        seconds=seconds,
    )


def rounded_up(value: float) -> float:
    """The next number that reads well on a scale; 1 when there is nothing to show."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in _STEPS if value <= step * power * (1 + 1e-9))


def _line(piece: Sequence[_Point]) -> str:
    points = [f"{x:.1f} {y:.1f}" for x, y in piece]
    # A value alone between two gaps is a line of no length; round ends make it a dot.
    return "M" + "L".join([*points, points[0]] if len(points) == 1 else points)


def _area(piece: Sequence[_Point]) -> str:
    first, last = piece[0][0], piece[-1][0]
    return f"M{first:.1f} {HEIGHT}L{_line(piece)[1:]}L{last:.1f} {HEIGHT}Z"
