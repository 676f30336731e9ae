"""Fills in columns that a change left out from the mirror's row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from frazil.clients.iceberg.write.arrow_schema import arrow_schema
from frazil.clients.iceberg.write.conforming import conform
from frazil.mirror.row_reader import read_rows
from frazil.model.schema.types import Schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from frazil.clients.iceberg.file_system import InputFiles
    from frazil.model.schema.types import Field


@dataclass(frozen=True, slots=True)
class RowPositions:
    """For each row, the file and position of the row it takes columns from."""

    file: NDArray[np.int32]
    position: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RowCompleter:
    """Reads missing values; ``locations`` are the mirror's files by ordinal."""

    fields: tuple[Field, ...]
    locations: Mapping[int, str]
    inputs: InputFiles

    def complete(
        self, rows: pa.RecordBatch, missing: Mapping[int, NDArray[np.bool_]], sources: RowPositions
    ) -> pa.RecordBatch:
        """The rows with every missing value filled in from ``sources``."""
        needed = np.logical_or.reduce(list(missing.values()))
        if not needed.any():
            return rows
        fields = [each for each in self.fields if each.id in missing]
        lacking = np.flatnonzero(needed)
        found = self.read(sources.file[lacking], sources.position[lacking], fields)
        # Converted to the table's types, so that both parts of a column have the same.
        columns = dict(zip(rows.schema.names, self._conformed(rows).columns, strict=True))
        for each in fields:
            where = missing[each.id]
            at = np.arange(rows.num_rows)
            at[where] = rows.num_rows + np.flatnonzero(where[lacking])
            both = pa.concat_arrays([columns[each.name], found[each.name]])
            columns[each.name] = both.take(pa.array(at))
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def read(
        self, files: NDArray[np.int32], positions: NDArray[np.int64], fields: list[Field]
    ) -> dict[str, pa.Array]:
        """Columns of the rows at these positions, in their order; a file is opened once."""
        order = np.argsort(files, kind="stable")
        tables = []
        for ordinal in np.unique(files):
            of_file = order[files[order] == ordinal]
            location = self.locations[int(ordinal)]
            tables.append(read_rows(self.inputs, location, positions[of_file], fields))
        back = np.empty(len(order), np.intp)
        back[order] = np.arange(len(order))
        rows = pa.concat_tables(tables).take(pa.array(back))
        return {name: pa.concat_arrays(rows.column(name).chunks) for name in rows.column_names}

    def _conformed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        # A value that is still missing is null, even in a required column.
        relaxed = Schema(0, tuple(replace(each, required=False) for each in self.fields))
        return conform(rows, relaxed, arrow_schema(relaxed))
