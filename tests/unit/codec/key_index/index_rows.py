"""Entries of the key index from and to plain rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from frazil.codec.key_index.entries import Entries


def entries_of(rows: list[tuple[int, int, int, int]], *, sequence: bool = False) -> Entries:
    hi, lo, file, position = zip(*rows, strict=True) if rows else ((), (), (), ())
    return Entries(
        np.array(hi, np.uint64),
        np.array(lo, np.uint64),
        np.array(file, np.int32),
        np.array(position, np.int64),
        pa.array([f"{at:04}" for at in range(len(rows))]) if sequence else None,
        np.arange(len(rows)) if sequence else None,
    )


def rows_of(entries: Entries) -> list[tuple[object, ...]]:
    lo = [0] * len(entries) if entries.lo is None else entries.lo.tolist()
    columns = [entries.hi.tolist(), lo, entries.file.tolist(), entries.position.tolist()]
    if entries.sequence is not None and entries.recorded is not None:
        columns += [entries.sequence.to_pylist(), entries.recorded.tolist()]
    return list(zip(*columns, strict=True))
