"""Batches on the local disk of a task, where they are more than its memory should hold."""

from __future__ import annotations

import mmap
import os
import tempfile
from contextlib import suppress

import pyarrow as pa

from frazil.errors import StorageError

# Spark's folders for spilled data; there may be several, one per disk.
_LOCAL_FOLDERS = "SPARK_LOCAL_DIRS"


class LocalSpill:
    """Takes batches, then gives them all back from the disk; ``content`` says what for."""

    def __init__(self, schema: pa.Schema, *, table: str, content: str) -> None:
        self._table = table
        self._content = content
        folder = os.environ.get(_LOCAL_FOLDERS, "").split(",")[0]
        try:
            # Never has a name, so that nothing is left behind.
            self._file = tempfile.TemporaryFile(dir=folder or None)  # noqa: SIM115 - closed below
            self._writer = pa.ipc.new_file(pa.PythonFile(self._file, mode="w"), schema)
        except OSError as error:
            raise self._failed() from error

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch; raises StorageError when the disk is full."""
        try:
            self._writer.write_batch(batch)
        except OSError as error:
            raise self._failed() from error

    def load(self) -> list[pa.RecordBatch]:
        """All batches, whose buffers are pages of the file: copy what is kept or changed.

        Empty lists read from a file have no offsets, which Arrow's nbytes would read.
        """
        try:
            self._writer.close()
            self._file.flush()
            mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise self._failed() from error
        reader = pa.ipc.open_file(pa.py_buffer(mapped))
        return [reader.get_batch(number) for number in range(reader.num_record_batches)]

    def discard(self) -> None:
        """Free the disk space; idempotent.

        Raises nothing: it also runs after another error, which must not be hidden.
        """
        # Arrow writes the end of the stream at every close, even if the file is closed already.
        with suppress(OSError, ValueError, pa.ArrowException):
            self._writer.close()
        # Closing flushes buffers, to a disk that may be full.
        with suppress(OSError, ValueError):
            self._file.close()

    def _failed(self) -> StorageError:
        message = f"{self._content} cannot be kept in Spark's local folder"
        return StorageError(
            message, table=self._table, next_step="give spark.local.dir a disk with more space"
        )
