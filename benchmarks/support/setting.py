"""How large a benchmark is and where it may put its tables."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from benchmarks.support.bench_lake import open_bench_lake

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.support.bench_lake import BenchLake

T = TypeVar("T")


class Size(StrEnum):
    """Full ones are for claims; small ones show in seconds that a benchmark still runs."""

    SMALL = "small"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Setting:
    """One run of benchmarks; tables that several of them start from are made once in ``folder``.

    With ``shared`` they have one session between them, which saves starting many and claims little.
    ``rows`` of the largest table and ``merges`` are for benchmarks that let them be chosen.
    """

    size: Size
    folder: Path
    shared: BenchLake | None = None
    rows: int | None = None
    merges: int | None = None

    def pick(self, *, small: T, full: T) -> T:
        """The one that fits the size."""
        return small if self.size is Size.SMALL else full

    @contextmanager
    def open_lake(self) -> Iterator[BenchLake]:
        """A lake with what earlier benchmarks of the run have left in the folder."""
        if self.shared is not None:
            yield self.shared
            return
        with open_bench_lake(self.folder) as lake:
            yield lake
