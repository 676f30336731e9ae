"""Sizes as people read them."""

from __future__ import annotations

from typing import Final

# Below it a tenth matters.
_WITH_A_TENTH: Final = 10
_KIBI: Final = 1024
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def format_size(count: int) -> str:
    """``512 B``, ``1.5 KiB``, ``340 MiB``."""
    amount, unit = float(max(count, 0)), 0
    # As soon as rounding would print 1024.
    while round(amount) >= _KIBI and unit < len(_UNITS) - 1:
        amount, unit = amount / _KIBI, unit + 1
    tenth = unit > 0 and round(amount, 1) < _WITH_A_TENTH
    return f"{amount:.1f} {_UNITS[unit]}" if tenth else f"{amount:.0f} {_UNITS[unit]}"
