"""A few rows written on the driver, by the writer that tasks use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from frazil.clients.iceberg.commit.strict_commit import FileChanges
from frazil.clients.iceberg.write.arrow_schema import arrow_schema
from frazil.clients.iceberg.write.task_writer import TaskWriter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from frazil.clients.iceberg.write.write_target import WriteTarget
    from frazil.hooks import Clock, Randomness


def write_rows(
    target: WriteTarget,
    rows: Sequence[Mapping[str, object]],
    *,
    clock: Clock,
    randomness: Randomness,
) -> FileChanges:
    """Files with these rows, ready to be committed; raises StorageError.

    Columns that a row leaves out are null. Files of a failed attempt stay for maintenance.
    """
    if not rows:
        return FileChanges()
    writer = TaskWriter(target, clock=clock, randomness=randomness)
    try:
        writer.write(pa.RecordBatch.from_pylist(list(rows), schema=arrow_schema(target.schema)))
        files = writer.close()
    except BaseException:
        writer.abandon()
        raise
    return FileChanges(added=tuple(file.descriptor for file in files))
