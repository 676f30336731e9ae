"""Pictures of figures: bars on a logarithmic scale, drawn as SVG that fits light and dark pages."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_WIDTH = 880
# Names are left of the bars, figures right of them.
_LEFT, _RIGHT = 380, 700
_ROW, _GAP, _TOP = 22, 26, 54
_STYLE = """
    svg { color-scheme: light dark; }
    .page { fill: #f6f9fb; } .text { fill: #1d2a33; } .faint { fill: #5b7083; }
    .grid { stroke: #d5dee5; } .ours { fill: #2b7a9b; } .other { fill: #a9b8c4; }
    @media (prefers-color-scheme: dark) {
      .page { fill: #0f171d; } .text { fill: #e4edf3; } .faint { fill: #93a7b6; }
      .grid { stroke: #2a3a46; } .ours { fill: #4fb3d9; } .other { fill: #566a79; }
    }
  """


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar and its figure, with a note."""

    name: str
    value: float
    is_ours: bool
    note: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Bars of one unit that are read together."""

    bars: tuple[Bar, ...]
    unit: str


@dataclass(frozen=True, slots=True)
class _Scale:
    """Powers of ten, from the one below the smallest figure to the one above the largest."""

    low: int
    high: int

    @classmethod
    def of(cls, values: Iterable[float]) -> _Scale:
        positive = [value for value in values if value > 0] or [1.0]
        low = math.floor(math.log10(min(positive)) - 0.05)
        return cls(low, max(math.ceil(math.log10(max(positive))), low + 1))

    def x(self, value: float) -> float:
        """Where a figure lies."""
        if value <= 0:
            return _LEFT
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return _LEFT + share * (_RIGHT - _LEFT)

    def ticks(self) -> list[float]:
        """The powers themselves."""
        return [10.0**power for power in range(self.low, self.high + 1)]


def draw(title: str, groups: Sequence[Group]) -> str:
    """The picture; each unit has a scale of its own."""
    units = {group.unit for group in groups}
    scales = {
        unit: _Scale.of(bar.value for group in groups if group.unit == unit for bar in group.bars)
        for unit in units
    }
    parts: list[str] = []
    top = _TOP
    for group in groups:
        height = _ROW * len(group.bars)
        parts += _grid(scales[group.unit], group.unit, top, height)
        for number, bar in enumerate(group.bars):
            parts += _bar(bar, scales[group.unit], group.unit, top + number * _ROW)
        top += height + _GAP
    return _page(title, parts, top)


def _page(title: str, parts: list[str], height: int) -> str:
    name = escape(title)
    body = "\n  ".join(parts)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" aria-labelledby="t" font-family="system-ui, sans-serif" font-size="13">
  <title id="t">{name}</title>
  <style>{_STYLE}</style>
  <rect class="page" width="{_WIDTH}" height="{height}" rx="12"/>
  <text class="text" x="24" y="32" font-size="16" font-weight="600">{name}</text>
  <text class="faint" x="{_WIDTH - 24}" y="32" text-anchor="end" font-size="12">medians, logarithmic scale</text>
  {body}
</svg>
"""  # noqa: E501


def _grid(scale: _Scale, unit: str, top: int, height: int) -> list[str]:
    lines = []
    for tick in scale.ticks():
        x = scale.x(tick)
        lines.append(
            f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{top - 4}" y2="{top + height}"/>'
        )
        lines.append(
            f'<text class="faint" x="{x:.1f}" y="{top + height + 13}" text-anchor="middle" '
            f'font-size="10">{_number(tick)} {escape(unit)}</text>'
        )
    return lines


def _bar(bar: Bar, scale: _Scale, unit: str, top: int) -> list[str]:
    kind = "ours" if bar.is_ours else "other"
    end = max(scale.x(bar.value), _LEFT + 1)
    middle = top + _ROW // 2 + 1
    note = f'  <tspan class="faint">{escape(bar.note)}</tspan>' if bar.note else ""
    return [
        f'<text class="text" x="{_LEFT - 10}" y="{middle}" text-anchor="end">'
        f"{escape(bar.name)}</text>",
        f'<rect class="{kind}" x="{_LEFT}" y="{top}" width="{end - _LEFT:.1f}" '
        f'height="{_ROW - 8}" rx="2"/>',
        f'<text class="text" x="{end + 8:.1f}" y="{middle}">'
        f"{_number(bar.value)} {escape(unit)}{note}</text>",
    ]


def _number(value: float) -> str:
    """Three digits that count, without an exponent."""
    if value == 0:
        return "0"
    digits = max(2 - math.floor(math.log10(abs(value))), 0)
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
