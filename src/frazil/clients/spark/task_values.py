"""Values that Spark tasks return to the driver, one row each."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The schema of what such a task returns.
PAYLOAD = "payload binary"


def payload(value: object) -> pa.RecordBatch:
    """A value as the one row that a task returns to the driver."""
    return pa.RecordBatch.from_pydict({"payload": pa.array([pickle.dumps(value)], pa.binary())})


def collect(frame: DataFrame) -> list[Any]:
    """The values that tasks returned."""
    # Written by our own tasks of this very job.
    return [pickle.loads(row.payload) for row in frame.collect()]  # noqa: S301
