"""Ranges of offsets: counts and checksums of two sides compared, single offsets joined; pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import TypeAlias

    # By number of the partition and of the range: how many rows, and the sum of their checksums.
    OffsetTotals: TypeAlias = Mapping[tuple[int, int], tuple[int, int]]

# Few enough to compare on the driver, also of a billion records.
RANGE_OFFSETS = 1 << 16


class OffsetProblem(StrEnum):
    """What is wrong with offsets."""

    MISSING = "missing"
    """The source has records with them, and the table has no rows."""
    SURPLUS = "surplus"
    """The table has rows, or more than one for an offset, and the source has no such records."""


@dataclass(frozen=True, slots=True)
class OffsetDifference:
    """Offsets of one partition, from ``first`` to ``last``, with the same problem."""

    problem: OffsetProblem
    partition: str
    first: int
    last: int

    def __str__(self) -> str:
        through = "" if self.first == self.last else f" to {self.last}"
        return f"{self.partition} {self.first}{through}"


def differing_ranges(expected: OffsetTotals, found: OffsetTotals) -> tuple[tuple[int, int], ...]:
    """Partition and number of the ranges in which two sides differ."""
    nothing = (0, 0)
    return tuple(
        sorted(
            each
            for each in expected.keys() | found.keys()
            if expected.get(each, nothing) != found.get(each, nothing)
        )
    )


def join_offsets(
    differing: Iterable[tuple[int, int, int]], names: Mapping[int, str], *, most: int
) -> tuple[OffsetDifference, ...]:
    """Ranges of offsets that follow each other and have the same problem, up to so many ranges.

    Each is a partition, an offset, and how many rows the table has too many; in their order.
    """
    joined: list[OffsetDifference] = []
    for partition, offset, surplus in differing:
        problem = OffsetProblem.SURPLUS if surplus > 0 else OffsetProblem.MISSING
        name = names.get(partition, str(partition))
        last = joined[-1] if joined else None
        if last is not None and (last.problem, last.partition, last.last + 1) == (
            problem,
            name,
            offset,
        ):
            joined[-1] = OffsetDifference(problem, name, last.first, offset)
        elif len(joined) == most:
            break
        else:
            joined.append(OffsetDifference(problem, name, offset, offset))
    return tuple(joined)
