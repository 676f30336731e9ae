"""Fields of an event: how they travel on a record, and those bound to the running work."""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# The attribute of a log record that carries our fields; long enough not to meet another's.
FIELDS_ATTRIBUTE: Final = "frazil_fields"

# Fields that hold values of rows, wherever they are in an event.
ROW_FIELDS: Final = frozenset(
    {"row", "rows_values", "value", "values", "before", "after", "payload"}
)

_bound: ContextVar[Mapping[str, object]] = ContextVar(
    "frazil_bound_fields", default=MappingProxyType({})
)


@contextlib.contextmanager
def bound(**fields: object) -> Iterator[None]:
    """Add fields (``table``, ``batch``) to every event of this thread or task until the end."""
    token = _bound.set({**_bound.get(), **fields})
    try:
        yield
    finally:
        _bound.reset(token)


def bound_fields() -> Mapping[str, object]:
    """The fields added by the `bound` blocks around the caller."""
    return _bound.get()


def without_row_values(event: Mapping[str, object]) -> dict[str, object]:
    """The event without fields that hold values of rows, at any depth."""
    return {key: _without(item) for key, item in event.items() if key not in ROW_FIELDS}


def _without(item: object) -> object:
    if isinstance(item, dict):
        return without_row_values(item)
    if isinstance(item, list | tuple):
        return [_without(part) for part in item]
    return item
