"""Entries to be cached, and what fetches them; also for processes that a test starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from frazil.codec.key_index.entries import Entries
from frazil.mirror.index.run_cache import BlobKey

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT = 1000
# What a thousand entries take as they are cached: three columns, and a little around them.
SIZE = 22_000
SPACE = 1 << 30


def entries_like(number: int, *, sequence: bool = False) -> Entries:
    column = np.arange(COUNT) + number
    return Entries(
        column.astype(np.uint64),
        column.astype(np.uint64) if sequence else None,
        column.astype(np.int32),
        column,
        pa.array([str(each) for each in column]) if sequence else None,
    )


def key_of(number: int) -> BlobKey:
    return BlobKey("s3://bucket/run.puffin", number, 99, 12345, COUNT)


class Fetcher:
    """Fetches entries, and counts how often."""

    def __init__(self) -> None:
        self.fetched: list[int] = []

    def of(self, number: int, *, sequence: bool = False) -> Callable[[], Entries]:
        def fetch() -> Entries:
            self.fetched.append(number)
            return entries_like(number, sequence=sequence)

        return fetch
