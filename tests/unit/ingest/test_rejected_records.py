"""Records that a task rejects: for which tables they are kept, and how many there may be."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from frazil.ingest.task import _TableWriters, over_bound
from frazil.model.records.rejected_record import RejectedRecord, RejectReason
from frazil.sources.protocol import ChangeColumn

NAME, OTHER = "public.users", "public.orders"
ROWS = pa.RecordBatch.from_pydict({ChangeColumn.OPERATION: ["INSERT"]})


class Writer:
    """Takes everything."""

    is_abandoned = False

    def write(self, _rows: object) -> None:
        """All is well."""

    def close(self) -> tuple[object, ...]:
        return ()

    def abandon(self) -> None:
        self.is_abandoned = True


def table_writers(writer: Writer) -> _TableWriters:
    """Those of two tables, which have rows already."""
    target = SimpleNamespace(lay_out=lambda rows: rows)
    targets: Any = {NAME: target, OTHER: target}
    writers: Any = {NAME: writer, OTHER: Writer()}
    opened = _TableWriters(targets, most_rejected_bytes=2_000, writers=writers)
    for table in targets:
        opened.write(table, ROWS)
    return opened


def rejected(table: str, size: int = 100) -> RejectedRecord:
    return RejectedRecord(
        table=table,
        offset=1,
        reason=RejectReason.INVALID,
        message="is none",
        payload=b"canary" + bytes(size),
    )


def test_records_that_are_no_rows_are_collected_for_tables_that_take_part() -> None:
    opened = table_writers(Writer())
    records = [rejected(NAME), rejected(OTHER)]
    for record in (*records, rejected("shop.paused")):
        opened.reject(record)
    outcome = opened.close()
    assert outcome.rejected == records
    assert not outcome.failures


def test_a_table_with_too_many_rejected_records_fails_and_the_others_keep_theirs() -> None:
    writer = Writer()
    opened = table_writers(writer)
    opened.reject(rejected(OTHER))
    for _ in range(5):
        opened.reject(rejected(NAME, size=400))
    opened.reject(rejected(OTHER))
    outcome = opened.close()
    assert [each.table for each in outcome.rejected] == [OTHER, OTHER]
    assert outcome.failures.keys() == {NAME}
    assert outcome.written.keys() == {OTHER}
    assert writer.is_abandoned
    said = str(outcome.failures[NAME])
    assert "at least 2 records of one batch were rejected" in said
    assert "lower ingest.max_rows" in said
    assert "canary" not in said


def test_the_tables_that_reject_most_are_left_out_until_the_rest_fits() -> None:
    records = [rejected(NAME), rejected(OTHER, size=5_000), *[rejected("shop.third")] * 4]
    assert over_bound(records, 10**6) == {}
    assert over_bound(records, 4_000).keys() == {OTHER}
    assert over_bound(records, 1_000).keys() == {OTHER, "shop.third"}
    assert over_bound(records, 0).keys() == {OTHER, "shop.third", NAME}
