"""An index is built bucket by bucket, in tasks that could not hold all of it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from frazil.mirror.index.run_merging import plan_bits

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.fault("X10")

# Of addresses, enforced by the kernel; 400 MiB of them are libraries, and a bucket takes 200.
LIMIT = 896 * 2**20
KEYS = 6_000_000

# What the task of one bucket does with the keys that Spark has brought together.
PROGRAM = """
import resource, sys
import numpy as np, pyarrow as pa
from frazil.mirror.index.run_building import FILE, HI, LO, POSITION, RunStore, _BucketWriter
from frazil.model.key_index import KeyHash
folder, rows, limit = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
dice = np.random.default_rng(1)
def batches():
    for first in range(0, rows, 10_000):
        count = min(10_000, rows - first)
        zeros = np.zeros(count, np.int64)
        hashes = dice.integers(-2**63, 2**63 - 1, count)
        yield pa.RecordBatch.from_pydict({
            HI: hashes, LO: zeros, FILE: zeros.astype(np.int32), POSITION: np.arange(count) + first
        })
writing = _BucketWriter(RunStore("t", folder, ()), "run", 0, KeyHash.XXHASH64, False, 0, False)
print(len(list(writing.write(batches()))))
"""


def build(folder: Path, rows: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, f"file:{folder}", str(rows), str(LIMIT)],
        # Each thread would take 64 MiB of addresses for what it may allocate one day.
        env={**os.environ, "MALLOC_ARENA_MAX": "2"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_bucket_of_a_large_index_fits_where_the_index_does_not(tmp_path: Path) -> None:
    finished = build(tmp_path, KEYS >> plan_bits(KEYS))
    assert (finished.returncode, finished.stdout) == (0, "1\n"), finished.stderr
    assert "MemoryError" in build(tmp_path, KEYS).stderr
