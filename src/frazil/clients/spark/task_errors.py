"""What crosses from a Spark task to the driver: values, and errors of ours.

Spark carries an exception as text and writes it to its log. An error of ours travels inside that
text and is raised again on the driver; of any other error only its kind and origin leave the task,
because its text may show a row. ``defects`` says which of those are failures of the machine.
"""

from __future__ import annotations

import base64
import json
import pickle
import re
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from frazil import errors
from frazil.clients.defects import defect, is_environment, origin_of
from frazil.clients.java_errors import gone_file, missing_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

_Arguments = ParamSpec("_Arguments")

_CARRIED = re.compile(r"<frazil-error:([A-Za-z0-9_=-]+)>")
_FLAGS = ("is_gone", "in_changes")
_FOREIGN = re.compile(r"<frazil-(failure|defect):([^<>\n]+)>")
# The schema of what such a task returns.
PAYLOAD = "payload binary"
# The kernel ends a process without a word; Spark reports what is left of it.
_LACKED_MEMORY = re.compile(
    r"MemoryError|ArrowException|OutOfMemory|Python worker exited unexpectedly"
    r"|ExecutorLostFailure|exit code 137"
)
_MEMORY_STEP = (
    "it is tried again in smaller pieces; if it repeats, give tasks more memory (in spark.conf, "
    "spark.executor.memoryOverhead and spark.executor.pyspark.memory), or lower ingest.max_bytes "
    "and merge.max_rows"
)


class CarriedError(Exception):
    """An error of ours on its way out of a task, as text that survives Spark."""

    def __init__(self, error: errors.FrazilError) -> None:
        document = {
            "code": error.code,
            "message": error.message,
            "table": error.table,
            "position": error.position,
            "next_step": error.next_step,
            "flags": [flag for flag in _FLAGS if getattr(error, flag, False)],
        }
        packed = base64.urlsafe_b64encode(json.dumps(document).encode()).decode()
        super().__init__(f"<frazil-error:{packed}>")


class MaskedError(Exception):
    """Any other error on its way out of a task: its kind and where it arose, not its text."""

    def __init__(self, error: Exception) -> None:
        kind = "failure" if is_environment(error) else "defect"
        super().__init__(f"<frazil-{kind}:{origin_of(error)}>")


def carries_errors(
    task: Callable[_Arguments, Iterator[pa.RecordBatch]],
) -> Callable[_Arguments, Iterator[pa.RecordBatch]]:
    """A task whose frazil errors reach the driver as what they are, others without their text."""

    @wraps(task)
    def carrying(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> Iterator[pa.RecordBatch]:
        try:
            yield from task(*args, **kwargs)
        except errors.FrazilError as error:
            raise CarriedError(error) from None
        except Exception as error:  # noqa: BLE001 - its text must not leave the task
            raise MaskedError(error) from None

    return carrying


@contextmanager
def running_tasks(table: str, doing: str) -> Iterator[None]:
    """Around a Spark job: raises the task's own error, DefectError, or else WriteFailedError.

    A file that Iceberg's own reader did not find is StorageError.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        missing = missing_file(error)
        if missing is not None:
            raise gone_file(missing, table=table, doing=doing) from None
        raise _as_error(str(error), table=table, doing=doing) from None


def _as_error(text: str, *, table: str, doing: str) -> errors.FrazilError:
    carried = _CARRIED.search(text)
    if carried is not None:
        return _unpacked(carried[1], table)
    foreign = _FOREIGN.search(text)
    if foreign is not None and foreign[1] == "defect":
        return defect(foreign[2], table=table, doing=doing)
    # A lost executor, a worker that was killed, files of a shuffle that are gone: they may pass.
    what = "an error of Spark's" if foreign is None else foreign[2]
    lacked_memory = _LACKED_MEMORY.search(text if foreign is None else what) is not None
    if lacked_memory and foreign is None:
        what = "a worker died, as it does without enough memory"
    error = errors.WriteFailedError(
        f"a Spark task failed while {doing}: {what}.",
        table=table,
        next_step=_MEMORY_STEP if lacked_memory else None,
    )
    error.lacked_memory = lacked_memory
    return error


def _unpacked(packed: str, table: str) -> errors.FrazilError:
    document = json.loads(base64.urlsafe_b64decode(packed))
    kind = next(leaf for leaf in errors.leaves() if leaf.code == document["code"])
    error = kind(
        document["message"],
        table=document["table"] or table,
        position=document["position"],
        next_step=document["next_step"],
    )
    for flag in document["flags"]:
        setattr(error, flag, True)
    return error


def payload(value: object) -> pa.RecordBatch:
    """A value as the one row that a task returns to the driver."""
    return pa.RecordBatch.from_pydict({"payload": pa.array([pickle.dumps(value)], pa.binary())})


def collect(frame: DataFrame) -> list[Any]:
    """The values that tasks returned."""
    # Written by our own tasks of this very job.
    return [pickle.loads(row.payload) for row in frame.collect()]  # noqa: S301
