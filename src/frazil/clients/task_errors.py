"""Errors of ours that cross from a Spark task to the driver, and what is said about all others.

Spark carries an exception as text. An error of ours travels inside that text and is raised again on
the driver as what it was; of any other error only its kind and the place are told, because its text
may show a row.
"""

from __future__ import annotations

import base64
import json
import re
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from frazil import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

_Arguments = ParamSpec("_Arguments")

_CARRIED = re.compile(r"<frazil-error:([A-Za-z0-9_=-]+)>")
_FRAME = re.compile(r'File "[^"]*/(frazil/[a-z_/]+\.py)", line (\d+)')
# The last line of a Python traceback starts with the class of the error.
_KIND = re.compile(r"^([A-Za-z_][A-Za-z0-9_.]*(?:Error|Exception|Interrupt))\b", re.MULTILINE)


class CarriedError(Exception):
    """An error of ours on its way out of a task, as text that survives Spark."""

    def __init__(self, error: errors.FrazilError) -> None:
        document = {
            "code": error.code,
            "message": error.message,
            "table": error.table,
            "position": error.position,
            "next_step": error.next_step,
        }
        packed = base64.urlsafe_b64encode(json.dumps(document).encode()).decode()
        super().__init__(f"<frazil-error:{packed}>")


def carries_errors(
    task: Callable[_Arguments, Iterator[pa.RecordBatch]],
) -> Callable[_Arguments, Iterator[pa.RecordBatch]]:
    """A task whose errors of ours reach the driver as what they are."""

    @wraps(task)
    def carrying(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> Iterator[pa.RecordBatch]:
        try:
            yield from task(*args, **kwargs)
        except errors.FrazilError as error:
            raise CarriedError(error) from None

    return carrying


@contextmanager
def running_tasks(table: str, doing: str) -> Iterator[None]:
    """Around a Spark job: raises the task's own error, else WriteFailedError without its text."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise _told(str(error), table=table, doing=doing) from None


def _told(text: str, *, table: str, doing: str) -> errors.FrazilError:
    carried = _CARRIED.search(text)
    if carried is not None:
        return _unpacked(carried[1], table)
    kinds, frames = _KIND.findall(text), _FRAME.findall(text)
    kind = kinds[-1] if kinds else "an error of Spark's"
    place = f" at {frames[-1][0]}:{frames[-1][1]}" if frames else ""
    message = f"a Spark task failed while {doing}: {kind}{place}."
    return errors.WriteFailedError(message, table=table)


def _unpacked(packed: str, table: str) -> errors.FrazilError:
    document = json.loads(base64.urlsafe_b64decode(packed))
    kind = next(leaf for leaf in errors.leaves() if leaf.code == document["code"])
    return kind(
        document["message"],
        table=document["table"] or table,
        position=document["position"],
        next_step=document["next_step"],
    )
