"""The order of rows within what is written at once: a table's sort order, as far as that goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

if TYPE_CHECKING:
    from frazil.model.schema.partitioning import SortOrder
    from frazil.model.schema.types import Schema


@dataclass(frozen=True, slots=True)
class RowOrder:
    """Columns that rows are sorted by, each ascending or not; nulls as Arrow puts them, last."""

    columns: tuple[tuple[str, bool], ...]

    def of(self, rows: pa.RecordBatch) -> pa.Array:
        """The row indices, in order."""
        ordered = [each for each in self.columns if _has_order(rows.schema.field(each[0]).type)]
        if not ordered:
            return pa.array(range(rows.num_rows))
        # By number: Arrow parses a name that begins with a dot or a bracket as a path.
        names = [str(number) for number in range(len(ordered))]
        columns = pa.table([rows.column(name) for name, _ in ordered], names)
        ways = ["descending" if is_descending else "ascending" for _, is_descending in ordered]
        return pc.sort_indices(columns, sort_keys=list(zip(names, ways, strict=True)))


def plan_row_order(schema: Schema, order: SortOrder, key_ids: tuple[int, ...] = ()) -> RowOrder:
    """The table's sort order by its source columns, which every transform but bucket keeps."""
    by_id = {each.id: each.name for each in schema.fields}
    wanted = [
        (by_id[each.source_id], each.descending) for each in order.fields if each.source_id in by_id
    ]
    return RowOrder(tuple(wanted or ((by_id[each], False) for each in key_ids)))


def _has_order(type_: pa.DataType) -> bool:
    return not (pt.is_nested(type_) or isinstance(type_, pa.ExtensionType))
