"""Which columns get metrics, and how long their bounds may be, by the table's properties."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from frazil.model.schema.types import Nested, Struct, children

if TYPE_CHECKING:
    from collections.abc import Mapping

    from frazil.model.schema.partitioning import SortOrder
    from frazil.model.schema.types import Field, Schema

# The length of bounds in characters or bytes; zero in the mode ``counts``.
COUNTS_ONLY = 0
FULL = 2**31 - 1

_DEFAULT_PROPERTY = "write.metadata.metrics.default"
_COLUMN_PREFIX = "write.metadata.metrics.column."
_LIMIT_PROPERTY = "write.metadata.metrics.max-inferred-column-defaults"
_DEFAULT_LENGTH = 16
_DEFAULT_LIMIT = 100
_TRUNCATE = re.compile(r"truncate\((\d{1,10})\)")

# The mode ``none``.
_NOTHING = None


def bound_lengths(
    schema: Schema, properties: Mapping[str, str], order: SortOrder
) -> dict[int, int]:
    """The length of bounds by field id, for every stored field that gets metrics at all.

    As in Iceberg, an invalid mode is treated as the default.
    """
    configured = properties.get(_DEFAULT_PROPERTY)
    limit = _limit(properties)
    modes: dict[str, int | None] = {}
    default: int | None = _DEFAULT_LENGTH
    if configured is not None:
        default = _parse(configured, _DEFAULT_LENGTH)
    elif _inferred_fields(schema) > limit:
        default = _NOTHING
        chosen = _first_fields(schema.fields, limit)
        modes = {each.name: _DEFAULT_LENGTH for each in schema.columns() if each.field.id in chosen}
    for name in _sorted_columns(schema, order):
        modes[name] = default or _DEFAULT_LENGTH
    for key, value in properties.items():
        if key.startswith(_COLUMN_PREFIX):
            modes[key.removeprefix(_COLUMN_PREFIX)] = _parse(value, default)
    lengths = {each.field.id: modes.get(each.name, default) for each in schema.leaves()}
    return {field_id: length for field_id, length in lengths.items() if length is not None}


def _parse(text: str, fallback: int | None) -> int | None:
    mode = text.lower()
    match = _TRUNCATE.fullmatch(mode)
    if match is not None and 0 < int(match[1]) <= FULL:
        return int(match[1])
    return {"none": _NOTHING, "counts": COUNTS_ONLY, "full": FULL}.get(mode, fallback)


def _limit(properties: Mapping[str, str]) -> int:
    text = properties.get(_LIMIT_PROPERTY, "")
    return int(text) if text.isdecimal() else _DEFAULT_LIMIT


def _inferred_fields(schema: Schema) -> int:
    # Iceberg counts stored fields and their parent structs, not lists and maps.
    return sum(each.is_leaf or isinstance(each.field.type, Struct) for each in schema.columns())


def _sorted_columns(schema: Schema, order: SortOrder) -> list[str]:
    columns = (
        schema.by_id(each.source_id) for each in order.fields if each.transform.preserves_order
    )
    return [each.name for each in columns if each is not None]


def _first_fields(fields: tuple[Field, ...], limit: int) -> set[int]:
    """The first stored fields, level by level inside each struct, as Iceberg picks them."""
    chosen: set[int] = set()
    _choose(fields, limit, chosen)
    return chosen


def _choose(fields: tuple[Field, ...], limit: int, chosen: set[int]) -> None:
    stored = (each.id for each in fields if not isinstance(each.type, Nested))
    for field_id in stored:
        if len(chosen) < limit:
            chosen.add(field_id)
    for each in fields:
        if len(chosen) < limit:
            _choose(children(each.type), limit, chosen)
