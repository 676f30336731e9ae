"""How a source is at one moment, as every kind describes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from frazil.errors import FrazilError

Fact: TypeAlias = str | int | float | bool | None
# Bytes of one log, or an offset for each partition.
LogPlace: TypeAlias = int | Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthLine:
    """One line of the page; ``is_well`` is None where there is nothing to judge."""

    label: str
    text: str
    note: str = ""
    is_well: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionHealth:
    """A partition of a source whose positions are offsets by partition.

    ``newest`` is the offset after its last record, ``offset`` the one that is captured next, None
    while that is unknown. ``holder`` is whoever works on it, None if nobody is known to.
    """

    partition: str
    newest: int
    offset: int | None = None
    holder: str | None = None

    @property
    def lag(self) -> int | None:
        """How many records are not captured, as far as offsets say."""
        return None if self.offset is None else max(0, self.newest - self.offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthFacts:
    """What a source says of itself, for programs and for people.

    ``details`` are facts by what they are about: fields of the source in the JSON status, and
    numbers of metrics. ``lines`` are for the page, ``summary`` for the terminal; partitions are
    shown on both in a form of their own. ``counts_bytes`` says that the distance between two
    positions of one log is a number of bytes.
    """

    details: Mapping[str, Mapping[str, Fact]] = field(default_factory=dict)
    lines: tuple[HealthLine, ...] = ()
    summary: str = ""
    partitions: tuple[PartitionHealth, ...] = ()
    counts_bytes: bool = True

    @property
    def lag_records(self) -> int | None:
        """Of all partitions; None without any, or while that of one is unknown."""
        lags = [each.lag for each in self.partitions]
        known = [each for each in lags if each is not None]
        return sum(known) if known and len(known) == len(lags) else None

    def captured_to(self, offsets: LogPlace | None) -> HealthFacts:
        """With the offsets that are known better than the source knows them."""
        if not isinstance(offsets, Mapping) or not self.partitions:
            return self
        known = tuple(
            replace(each, offset=offsets.get(each.partition, each.offset))
            for each in self.partitions
        )
        return replace(self, partitions=known)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceHealth:
    """How far the source itself is, and what else it says.

    ``problem`` is why a run could not continue, where an operator has to act. ``age_seconds`` is
    how long ago the source was asked, where asking costs too much to do it every time.
    """

    newest: LogPlace
    facts: HealthFacts | None = None
    problem: FrazilError | None = None
    age_seconds: float = 0.0


class HealthWatch(Protocol):
    """Reads the health of a source again and again; belongs to one thread."""

    def load(self) -> SourceHealth:
        """The health now; raises SourceUnavailableError and what else connecting meets."""

    def close(self) -> None:
        """End the connection."""
