"""Whether a table that holds rows may get another schema: a pure question."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.errors import UnsupportedSchemaChangeError
from frazil.model.schema.change import Add, plan_schema_change
from frazil.model.schema.types import Schema

if TYPE_CHECKING:
    from frazil.model.schema.change import SchemaChange
    from frazil.model.schema.types import Field

# Readers of older versions know no defaults and would show nulls.
_DEFAULTS_SINCE = 3


def plan_evolution(
    current: Schema, wanted: Schema, *, last_column_id: int, format_version: int
) -> SchemaChange:
    """The steps from one schema to the other, on this very table.

    Raises UnsupportedSchemaChangeError when no step leads there, when a new column has the id of
    one that was dropped, or a default that the table's format does not know.
    """
    change = plan_schema_change(current, wanted)
    for step in change.steps:
        if isinstance(step, Add):
            _refuse_unusable(step.field, last_column_id, format_version)
    return change


def _refuse_unusable(new: Field, last_column_id: int, format_version: int) -> None:
    ids = [column.field.id for column in Schema(0, (new,)).columns()]
    if min(ids) <= last_column_id:
        # The dropped column's values in old files would come back under the new name.
        message = (
            f"the new column {new.name!r} has id {min(ids)}, and the table has given ids up to "
            f"{last_column_id}."
        )
        raise UnsupportedSchemaChangeError(message)
    if new.initial_default is not None and format_version < _DEFAULTS_SINCE:
        message = (
            f"the new column {new.name!r} has a default, which tables of format version "
            f"{format_version} do not keep."
        )
        raise UnsupportedSchemaChangeError(message)
