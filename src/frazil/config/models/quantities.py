"""Durations and sizes as people write them, as values that carry their unit."""

from __future__ import annotations

import re
from datetime import timedelta

_DURATION = re.compile(r"([0-9]{1,15})(ms|s|m|h|d)")
_SIZE = re.compile(r"([0-9]{1,19}) ?(B|[kKMGTP]i?B)")

DURATION_PATTERN = "^[0-9]+(ms|s|m|h|d)$"
SIZE_PATTERN = "^[0-9]+ ?(B|[kKMGTP]i?B)$"
DURATION_WORDS = "a duration such as 500ms, 10s, 1m, 168h or 7d"
SIZE_TEXT = "a size such as 256MB, 128MiB or 10GiB, or a whole number of bytes"

_UNITS_OF_TIME = {
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
}
_BINARY_UNITS = {"PiB": 2**50, "TiB": 2**40, "GiB": 2**30, "MiB": 2**20, "KiB": 2**10}
_UNITS_OF_SIZE = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "PB": 10**15,
    "kiB": 2**10,
    **_BINARY_UNITS,
}

# A century: nothing here waits longer, and sums of two such values stay far from overflow.
LONGEST_DURATION = timedelta(days=36_500)
# What a signed 64-bit integer holds, because sizes travel to the JVM and to Parquet.
LARGEST_SIZE = 2**63 - 1


def parse_duration(text: str) -> timedelta:
    """Read ``500ms``, ``10s``, ``1m``, ``168h`` or ``7d``; raises ValueError on anything else."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(DURATION_WORDS)
    count, unit = int(match[1]), _UNITS_OF_TIME[match[2]]
    if count > LONGEST_DURATION // unit:
        raise ValueError(DURATION_WORDS)
    return count * unit


def format_duration(duration: timedelta) -> str:
    """Write a duration in its largest exact unit, so that it reads back as the same value."""
    for name, unit in _UNITS_OF_TIME.items():
        if duration and duration % unit == timedelta(0):
            return f"{duration // unit}{name}"
    return f"{duration // _UNITS_OF_TIME['ms']}ms"


def parse_size(text: str) -> int:
    """Read ``256MB``, ``128MiB`` or ``10GiB`` as bytes; raises ValueError on anything else."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(SIZE_TEXT)
    size = int(match[1]) * _UNITS_OF_SIZE[match[2]]
    if size > LARGEST_SIZE:
        raise ValueError(SIZE_TEXT)
    return size


def format_size(size: int) -> str:
    """Write bytes in their largest exact binary unit, so that they read back as the same value."""
    for name, unit in _BINARY_UNITS.items():
        if size and size % unit == 0:
            return f"{size // unit}{name}"
    return f"{size}B"
