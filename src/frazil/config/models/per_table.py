"""The settings of one table: its own over those for all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.config.models.tables import (
    TOMBSTONES_KEPT,
    IndexOverrides,
    Mirror,
    Table,
    WriteOverrides,
)
from frazil.model.policy import Order

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from frazil.config.models.document import Config
    from frazil.config.models.tables import ColumnSettings

_MIRROR_KEYS = (
    "format_version", "partition_by", "sort_by", "deletes", "on_drop", "evolution",
    "on_unrepresentable",
)  # fmt: skip
# A source has names that no document could list.
_NOT_LISTED = Table(mirror="not.listed")


@dataclass(frozen=True, slots=True)
class TableSettings:
    """Everything the document says about one mirror and its changelog.

    ``changelog`` is None and ``key`` empty when the source decides them; ``tombstones`` is None
    when the order is append, ``changelog_partition_by`` when it is not given.
    """

    name: str
    changelog: str | None
    key: tuple[str, ...]
    sequence: str
    operation: str
    order: Order
    tombstones: timedelta | None
    columns: Mapping[str, ColumnSettings]
    column_prefix: str
    changelog_partition_by: tuple[str, ...] | None
    mirror: Mirror


def table_settings(config: Config, mirror: str) -> TableSettings:
    """The settings of the mirror with this name, whether the document lists it or not."""
    table = next((t for t in config.tables if t.mirror == mirror), None)
    own = table if table is not None else _NOT_LISTED
    prefix = own.column_prefix or config.column_prefix
    order = config.order_of(table)
    tombstones = (own.tombstones or TOMBSTONES_KEPT) if order is Order.PER_KEY else None
    partition_by = own.changelog_partition_by
    if partition_by is None and "partition_by" in config.changelog.model_fields_set:
        partition_by = config.changelog.partition_by
    return TableSettings(
        name=mirror,
        changelog=own.changelog,
        key=own.key,
        sequence=own.sequence or f"{prefix}sequence_number",
        operation=own.operation or f"{prefix}operation",
        order=order,
        tombstones=tombstones,
        columns=own.columns,
        column_prefix=prefix,
        changelog_partition_by=partition_by,
        mirror=_merged(config.mirror, own),
    )


def _merged(mirror: Mirror, own: Table) -> Mirror:
    changes = {key: getattr(own, key) for key in _MIRROR_KEYS if getattr(own, key) is not None}
    write = mirror.write.model_copy(update=_given(own.write))
    index = mirror.index.model_copy(update=_given(own.index))
    return mirror.model_copy(update={**changes, "write": write, "index": index})


def _given(overrides: WriteOverrides | IndexOverrides) -> dict[str, object]:
    # An override of 0 or false counts; only what is left out does not.
    values = {name: getattr(overrides, name) for name in type(overrides).model_fields}
    return {name: value for name, value in values.items() if value is not None}
