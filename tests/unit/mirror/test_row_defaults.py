"""What a row shows in a column that is younger than its file."""

from __future__ import annotations

import io
from decimal import Decimal as Number
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frazil.mirror.row_reader import read_rows
from frazil.model.schema.types import Decimal, Field, Primitive

if TYPE_CHECKING:
    from frazil.model.schema.types import Default, Type

P = Primitive
SOME_UUID = UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")


class OneFile:
    """A data file with the single column 1, two rows long."""

    def open(self, _location: str) -> io.BytesIO:
        column = pa.field("id", pa.int32(), metadata={b"PARQUET:field_id": b"1"})
        written = io.BytesIO()
        pq.write_table(pa.table([[1, 2]], schema=pa.schema([column])), written)
        return io.BytesIO(written.getvalue())


@pytest.mark.parametrize(
    ("type_", "default", "value"),
    [
        (P.INT, 7, 7),
        (P.STRING, "x", "x"),
        (P.BINARY, "00ff", b"\x00\xff"),
        (P.UUID, str(SOME_UUID), SOME_UUID.bytes),
        (Decimal(9, 2), "14.20", Number("14.20")),
    ],
    ids=str,
)
def test_a_younger_column_shows_its_initial_default(
    type_: Type, default: Default, value: Any
) -> None:
    late = Field(2, "late", type_, initial_default=default)
    files: Any = OneFile()
    # Alone, and next to a column that the file has.
    for fields in ([late], [Field(1, "id", P.INT), late]):
        rows = read_rows(files, "file", np.array([0, 1]), fields)
        assert rows.column("late").to_pylist() == [value] * 2
