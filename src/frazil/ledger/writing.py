"""A few rows written on the driver, by the writer that tasks use."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa

from frazil.clients.iceberg.commit.strict_commit import FileChanges
from frazil.clients.iceberg.write.arrow_schema import arrow_schema
from frazil.clients.iceberg.write.task_writer import TaskWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from frazil.clients.iceberg.write.write_target import WriteTarget
    from frazil.hooks import Clock, Randomness

# Rows have payloads of any size: few are held at a time.
_ROWS_AT_ONCE = 256


def write_rows(
    target: WriteTarget,
    rows: Iterable[Mapping[str, object]],
    *,
    clock: Clock,
    randomness: Randomness,
) -> FileChanges:
    """Files with these rows, ready to be committed; raises StorageError.

    Columns that a row leaves out are null. Files of a failed attempt stay for maintenance.
    """
    remaining, schema = iter(rows), arrow_schema(target.schema)
    writer: TaskWriter | None = None
    try:
        while piece := list(islice(remaining, _ROWS_AT_ONCE)):
            writer = writer or TaskWriter(target, clock=clock, randomness=randomness)
            writer.write(pa.RecordBatch.from_pylist(piece, schema=schema))
        files = () if writer is None else writer.close()
    except BaseException:
        if writer is not None:
            writer.abandon()
        raise
    return FileChanges(added=tuple(file.descriptor for file in files))
