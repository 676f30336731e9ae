"""A line over time as the paths of an SVG; pure.

The page stretches the drawing, so that its units mean nothing; texts are next to it in HTML,
where they keep their size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

WIDTH: Final = 600
HEIGHT: Final = 120
# Numbers that read well on a scale, also when they are halved, times a power of ten.
_STEPS: Final = (1, 1.5, 2, 3, 4, 5, 6, 8, 10)

_Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Plot:
    """``line`` and ``area`` are paths; ``top`` is the value at the upper edge."""

    line: str
    area: str
    top: float
    seconds: float
    """From its left to its right edge."""


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
