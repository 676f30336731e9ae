from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from frazil.clients.iceberg.write.conforming import conform
from frazil.clients.spark.task_errors import carries_errors, running_tasks
from frazil.errors import DefectError, FrazilError, NullKeyError, WriteFailedError

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = "4111-1111"


def refuse() -> pa.RecordBatch:
    error = NullKeyError("3 changes have a null in a key column.", next_step="fix the source")
    error.in_changes = True
    raise error


@carries_errors
def refusing() -> Iterator[pa.RecordBatch]:
    yield refuse()


@carries_errors
def breaking() -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"a": pa.array([SECRET]).cast(pa.int64())})


@carries_errors
def breaking_inside() -> Iterator[pa.RecordBatch]:
    yield conform(None, None, None)  # type: ignore[arg-type]


def text_out_of(task: object) -> str:
    """What Spark gets to see of a task that fails, and writes to its log."""
    try:
        list(task())  # type: ignore[operator]
    except Exception:  # noqa: BLE001 - whatever it is, its text is what counts
        return traceback.format_exc()
    raise AssertionError("the task did not fail")


def driver_error(text: str) -> FrazilError:
    """What the driver makes of it."""
    with pytest.raises(FrazilError) as caught, running_tasks("lake.a.t", "merging"):
        raise PySparkException(text)
    return caught.value


def test_an_error_of_ours_reaches_the_driver_as_what_it_was() -> None:
    error = driver_error(text_out_of(refusing))
    assert isinstance(error, NullKeyError)
    assert error.in_changes
    assert (error.message, error.next_step, error.table) == (
        "3 changes have a null in a key column.",
        "fix the source",
        "lake.a.t",
    )


@pytest.mark.fault("N44")
def test_of_any_other_error_only_its_kind_leaves_the_task() -> None:
    text = text_out_of(breaking)
    assert SECRET not in text
    error = driver_error(text)
    assert isinstance(error, DefectError)
    assert "unexpected ArrowInvalid at no line of ours while merging (reference " in str(error)


@carries_errors
def without_a_disk() -> Iterator[pa.RecordBatch]:
    yield read_nothing(OSError(28, SECRET))


@carries_errors
def without_memory() -> Iterator[pa.RecordBatch]:
    yield read_nothing(MemoryError(SECRET))


@carries_errors
def without_threads() -> Iterator[pa.RecordBatch]:
    """As Arrow says it where a worker has no memory left for one."""
    what = "Failed to launch worker thread: Resource temporarily unavailable"
    yield read_nothing(pa.ArrowException(f"Unknown error: {what} {SECRET}"))


def read_nothing(error: Exception) -> pa.RecordBatch:
    raise error


@pytest.mark.fault("N44", "O2", "O3")
@pytest.mark.parametrize("task", [without_a_disk, without_memory, without_threads])
def test_what_the_machine_does_to_any_code_may_pass(task: object) -> None:
    text = text_out_of(task)
    assert SECRET not in text
    error = driver_error(text)
    assert isinstance(error, WriteFailedError)
    assert error.lacked_memory == (task is not without_a_disk)


@pytest.mark.fault("N44", "O3")
@pytest.mark.parametrize(
    "text",
    [
        "ExecutorLostFailure (executor 1 exited caused by one of the running tasks)",
        "Python worker exited unexpectedly (crashed)",
        "org.apache.spark.shuffle.FetchFailedException",
    ],
)
def test_a_lost_task_is_no_defect(text: str) -> None:
    error = driver_error(text)
    assert isinstance(error, WriteFailedError)
    # The kernel kills without a word; files of a shuffle may be gone for any reason.
    assert error.lacked_memory == ("Fetch" not in text)
    names_memory = "spark.executor.memoryOverhead" in (error.next_step or "")
    assert names_memory == error.lacked_memory


def test_the_last_line_of_ours_is_reported() -> None:
    assert "at frazil/clients/iceberg/write/conforming.py:" in str(
        driver_error(text_out_of(breaking_inside))
    )


def test_what_spark_itself_says_stays_with_it() -> None:
    error = driver_error(f"[CAST_INVALID_INPUT] The value '{SECRET}' cannot be cast")
    assert str(error.message) == "a Spark task failed while merging: an error of Spark's."
