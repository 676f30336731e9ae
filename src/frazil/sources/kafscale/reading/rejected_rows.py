"""Records that cannot become rows, taken out of their batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from frazil.model.records.rejected_record import RejectedRecord

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from frazil.model.records.rejected_record import RejectReason

# Next to a value that was fetched: the one that the record has, which says where it is.
STORED_VALUE = "stored_value"


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """Why a row is none; the message shows nothing of it."""

    reason: RejectReason
    message: str


def reject_rows(
    records: pa.RecordBatch, rows: Mapping[int, RejectedRow], *, topic: str, partition: int
) -> tuple[RejectedRecord, ...]:
    """These rows of a batch of records; their payload is what the topic has as their value."""
    has_stored = STORED_VALUE in records.schema.names
    values = records.column(STORED_VALUE if has_stored else "value")
    offsets = records.column("offset")
    return tuple(
        RejectedRecord(
            table=topic,
            partition=str(partition),
            offset=offsets[row].as_py(),
            reason=why.reason,
            message=why.message,
            payload=values[row].as_py() or b"",
        )
        for row, why in rows.items()
    )


def rows_but(count: int, rows: Collection[int]) -> pa.BooleanArray:
    """A mask of all rows but these."""
    kept = np.ones(count, np.bool_)
    kept[list(rows)] = False
    return pa.array(kept)
