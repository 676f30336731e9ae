"""Fifty thousand partitions in one task: memory goes with neither their number nor their rows."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.deep, pytest.mark.fault("N31")]

# Half a million rows of 500 bytes that nothing compresses; every batch has all partitions.
PROGRAM = """
import json, re, sys, time
from pathlib import Path
import numpy as np, pyarrow as pa
from frazil.clients.iceberg.write.task_writer import TaskWriter
from frazil.clients.iceberg.write.write_target import plan_write_target
from frazil.model.schema.partitioning import PartitionField, PartitionSpec, parse_transform
from frazil.model.schema.types import Field, Primitive, Schema
from frazil.hooks import SystemClock, SystemRandomness
schema = Schema(0, (Field(1, "id", Primitive.LONG), Field(2, "data", Primitive.BINARY)))
spec = PartitionSpec(0, (PartitionField(1, 1000, "id", parse_transform("identity")),))
to = plan_write_target(
    table="t", location=sys.argv[1], schema=schema, spec=spec, properties={}, io_properties={}
)
start = time.monotonic()
writer = TaskWriter(to, clock=SystemClock(), randomness=SystemRandomness())
dice = np.random.default_rng(1)
for _ in range(10):
    data = pa.Array.from_buffers(
        pa.binary(500), 50_000, [None, pa.py_buffer(dice.bytes(25_000_000))]
    ).cast(pa.binary())
    ids = pa.array(dice.permutation(50_000))
    writer.write(pa.RecordBatch.from_arrays([ids, data], names=["id", "data"]))
files = writer.close()
status = Path("/proc/self/status").read_text()
print(json.dumps({
    "files": len(files), "rows": sum(each.rows for each in files),
    "anonymous": int(re.search(r"RssAnon:\\s+(\\d+) kB", status)[1]) * 1024,
    "peak": int(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1]) * 1024,
    "seconds": time.monotonic() - start,
}))
"""


def test_fifty_thousand_partitions_take_bounded_memory(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, f"file:{tmp_path}"]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    sys.stdout.write(finished.stdout)
    found = json.loads(finished.stdout)
    assert (found["files"], found["rows"]) == (50_000, 500_000)
    # The waiting rows are mapped from a file: they count as resident and can be taken back.
    assert found["peak"] < 1024 * 2**20
    assert found["anonymous"] < 512 * 2**20
