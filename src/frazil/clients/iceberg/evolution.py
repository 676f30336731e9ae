"""Checks whether a table can follow a schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.model.schema.evolution import plan_evolution

if TYPE_CHECKING:
    from frazil.clients.iceberg.table import LakeTable
    from frazil.model.schema.types import Schema


def check_evolution(table: LakeTable, wanted: Schema) -> None:
    """Refuse a schema the table cannot follow; UnsupportedSchemaChangeError has the differences.

    ``wanted`` keeps the id of the schema it was made from. When the table has another one now,
    nothing is compared: the commit decides whether that was ours.
    """
    current = table.load_schema()
    if current.schema_id != wanted.schema_id:
        return
    # Read second: a schema that changes in between is detected by the commit.
    state = table.load_state()
    plan_evolution(
        current,
        wanted,
        last_column_id=state.last_column_id,
        format_version=state.format_version,
    )
