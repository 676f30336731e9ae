"""What a metric is, as a value: name, help, unit, labels, buckets."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Unit(StrEnum):
    """Base units only; a plain number has none."""

    NONE = ""
    SECONDS = "seconds"
    BYTES = "bytes"
    # Foreign names alone may use it.
    MILLISECONDS = "ms"


@dataclass(frozen=True, slots=True)
class Label:
    """A label; with ``values`` it is closed, without it is open but bounded by configuration."""

    name: str
    values: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """A number that only grows."""

    name: str
    help: str
    unit: Unit = Unit.NONE
    labels: tuple[Label, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """The current value of a number; not exposed before it is set for the first time."""

    name: str
    help: str
    unit: Unit = Unit.NONE
    labels: tuple[Label, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """How often a size or duration fell below each bucket."""

    name: str
    help: str
    buckets: tuple[float, ...]
    unit: Unit = Unit.NONE
    labels: tuple[Label, ...] = ()


Metric = Counter | Gauge | Histogram
