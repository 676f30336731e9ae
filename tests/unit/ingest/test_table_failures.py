"""Whose failure it is: one table's defect is tried again a few times, and stops that table only."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from frazil.errors import (
    DefectError,
    SourceUnavailableError,
    StorageError,
    UnrepresentableValueError,
    WriteFailedError,
)
from frazil.ingest.batch_run import BatchResult, of_one_table
from frazil.ingest.retrying_tables import RetryingTables
from frazil.ingest.task import IngestJob, _TableWriters
from frazil.pipeline.recovery import may_pass
from frazil.sources.protocol import ChangeColumn, Limit

if TYPE_CHECKING:
    from frazil.errors import FrazilError

pytestmark = pytest.mark.fault("N44")

NAME, OTHER = "public.users", "public.orders"
DEFECT = DefectError("unexpected IndexError (reference 1).", table=NAME)
ATTEMPTS = 3
LIMIT = Limit(rows=1000, bytes=64)


def result_of(failure: FrazilError | None, *, committed: bool = False) -> BatchResult:
    found = BatchResult("b", failures={} if failure is None else {NAME: failure})
    if committed:
        done: Any = None
        found.committed[OTHER if failure else NAME] = done
    return found


def test_a_defect_is_tried_a_few_times_and_then_pauses_its_table() -> None:
    retrying = RetryingTables(ATTEMPTS, LIMIT, may_pass)
    for _ in range(ATTEMPTS - 1):
        met = result_of(DEFECT)
        retrying.count(met)
        assert retrying.may_pass(NAME, DEFECT)
        # Reported as something that may pass, because the capture of the others goes on.
        with pytest.raises(WriteFailedError, match="reference 1"):
            retrying.require_final_of(met)
    retrying.count(result_of(DEFECT))
    retrying.require_final_of(result_of(DEFECT))
    assert not retrying.may_pass(NAME, DEFECT)


@pytest.mark.parametrize("forgets", [True, False])
def test_a_table_that_went_on_begins_to_count_again(*, forgets: bool) -> None:
    retrying = RetryingTables(1, LIMIT, may_pass)
    retrying.count(result_of(DEFECT))
    assert not retrying.may_pass(NAME, DEFECT)
    if forgets:
        retrying.forget()
    else:
        retrying.count(result_of(None, committed=True))
    assert retrying.may_pass(NAME, DEFECT)


def test_what_is_met_outside_of_a_batch_counts_as_well() -> None:
    retrying = RetryingTables(2, LIMIT, may_pass)
    with pytest.raises(WriteFailedError):
        retrying.require_final(NAME, DEFECT)
    retrying.require_final(NAME, DEFECT)


@pytest.mark.fault("O3")
def test_batches_become_smaller_while_tasks_die_of_their_size_and_larger_again_after_it() -> None:
    retrying = RetryingTables(ATTEMPTS, LIMIT, may_pass)
    died, other = WriteFailedError("a worker died"), WriteFailedError("a disk is full")
    died.lacked_memory = True
    for error in (other, KeyboardInterrupt()):
        retrying.count_failure(error)
    assert retrying.limit == LIMIT
    for rows, size in ((500, 32), (250, 16)):
        retrying.count_failure(died)
        assert retrying.limit == Limit(rows, size)
    # Not for one batch that came through: the next larger one may die like the one before.
    for rows in [250] * 8 + [500] * 8 + [1000] * 9:
        assert retrying.limit.rows == rows
        retrying.require_final_of(result_of(None, committed=True))
    for _ in range(20):
        retrying.count_failure(died)
    assert retrying.limit == Limit(1000 // 64, 1)


def test_what_requires_action_is_not_tried_again() -> None:
    retrying, final = (
        RetryingTables(ATTEMPTS, LIMIT, may_pass),
        UnrepresentableValueError("does not fit"),
    )
    retrying.require_final_of(result_of(final))
    assert not retrying.may_pass(NAME, final)
    assert retrying.may_pass(NAME, StorageError("away"))


def test_a_copy_that_brought_nothing_waits_and_one_that_did_goes_on() -> None:
    retrying = RetryingTables(ATTEMPTS, LIMIT, may_pass)
    retrying.require_progress(result_of(SourceUnavailableError("away"), committed=True))
    retrying.require_progress(result_of(UnrepresentableValueError("does not fit")))
    with pytest.raises(SourceUnavailableError):
        retrying.require_progress(result_of(SourceUnavailableError("away")))


def test_what_the_machine_does_is_not_blamed_on_a_table() -> None:
    for error in (StorageError("away"), OSError("disk"), MemoryError()):
        with pytest.raises(type(error)):
            of_one_table(error, NAME, "preparing its changelog")
    assert isinstance(of_one_table(KeyError("a value"), NAME, "preparing"), DefectError)


class Writer:
    """Takes everything, or fails when it is closed."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.is_abandoned = False

    def write(self, _rows: object) -> None:
        """All is well."""

    def close(self) -> tuple[object, ...]:
        if self.error is not None:
            raise self.error
        return ()

    def abandon(self) -> None:
        self.is_abandoned = True


def lay_out(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows


def breaks(_rows: pa.RecordBatch) -> pa.RecordBatch:
    raise IndexError("a value of a row")


ROWS = pa.RecordBatch.from_pydict({ChangeColumn.OPERATION: ["INSERT"]})


def table_writers(writer: Writer, *, layout: Any = lay_out) -> _TableWriters:
    well = SimpleNamespace(lay_out=lay_out)
    targets: Any = {NAME: SimpleNamespace(lay_out=layout), OTHER: well}
    writers: Any = {NAME: writer, OTHER: Writer()}
    return _TableWriters(targets, most_rejected_bytes=2_000, writers=writers)


def test_a_defect_while_rows_of_a_table_are_laid_out_leaves_the_other_one_written() -> None:
    writer = Writer()
    opened = table_writers(writer, layout=breaks)
    for table in (NAME, OTHER, NAME):
        opened.write(table, ROWS)
    outcome = opened.close()
    assert outcome.written.keys() == {OTHER}
    assert outcome.written[OTHER].operations == {"INSERT": 1}
    assert isinstance(outcome.failures[NAME], DefectError)
    assert "a value of a row" not in str(outcome.failures[NAME])
    assert writer.is_abandoned


def test_a_defect_while_files_are_closed_is_of_their_table_too() -> None:
    opened = table_writers(Writer(IndexError("a value of a row")))
    for table in (NAME, OTHER):
        opened.write(table, ROWS)
    outcome = opened.close()
    assert outcome.written.keys() == {OTHER}
    assert isinstance(outcome.failures[NAME], DefectError)


@pytest.mark.parametrize("error", [OSError("disk"), MemoryError()])
def test_what_the_machine_does_fails_the_task(error: Exception) -> None:
    opened = table_writers(Writer(error))
    opened.write(NAME, ROWS)
    with pytest.raises(type(error)):
        opened.close()


def test_what_a_source_refuses_is_not_written() -> None:
    final = UnrepresentableValueError("does not fit")
    reader = SimpleNamespace(read=lambda _split: [SimpleNamespace(table=NAME, error=final)])
    some: Any = reader
    job = IngestJob(reader=some, tasks=(), targets={}, most_rejected_bytes=0)
    outcome = job.do([SimpleNamespace(weight=1)])  # type: ignore[list-item]
    assert outcome.failures == {NAME: final}
