"""A gap is confirmed by the table's own position, also where rows of another writer say it."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from frazil.errors import CommitConflictError, MarkerLostError, PositionLostError
from frazil.ingest.captured_table import CapturedPosition, CapturedTable
from frazil.ingest.opened_tables import OpenedTables
from frazil.model.schema.table_layout import TableLayout
from frazil.sources.protocol import Batch, PartitionFailure, Progress, TableProgress

if TYPE_CHECKING:
    from collections.abc import Mapping

ORDERS = "orders"


@dataclass
class LeftTable:
    """A table without a marker, whose rows end at these offsets."""

    rows: Mapping[str, int]

    def load_position(
        self,
        source: str = "",  # noqa: ARG002 - as CapturedTable has it
        offset_columns: tuple[str, str, str] | None = None,
    ) -> CapturedPosition:
        if offset_columns is None:
            raise MarkerLostError("it has rows and no marker.")
        return CapturedPosition(position=self.rows, epoch=0, shape="")


def confirm(rows: Mapping[str, int]) -> None:
    """A gap at offset 3, which the rows ended at when it was found."""
    tables = OpenedTables(lambda _: cast("CapturedTable", LeftTable(rows)))
    layout = TableLayout(columns=(), offset_columns=("topic", "partition", "offset"))
    tables.layouts = {ORDERS: layout}
    error = PositionLostError("offsets are missing.")
    failures = (PartitionFailure(ORDERS, "orders/0", 3, error),)
    known = {ORDERS: TableProgress({"orders/0": 3}, "", "")}
    tables.confirm_gaps(
        cast("Batch", SimpleNamespace(failures=failures)), Progress(acknowledged={}, tables=known)
    )


def test_a_table_that_another_writer_left_confirms_a_gap() -> None:
    confirm({"orders/0": 3})


def test_a_writer_that_goes_on_captured_what_seemed_to_be_lost() -> None:
    with pytest.raises(CommitConflictError):
        confirm({"orders/0": 8})
