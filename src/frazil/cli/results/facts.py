"""Frozen values of any kind as lines of text and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from frazil.model.table_name import TableName

# They have 63 bits, and jq, JavaScript and many others keep 53 of a number.
SNAPSHOT_IDS: Final = frozenset({"snapshot", "snapshot_id", "after", "through", "head"})

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def to_json(value: object) -> object:
    """The value in what the json module takes: fields by name, enums by value, the rest as text."""
    match value:
        case Enum():
            return to_json(value.value)
        case None | str() | int() | float():
            return value
        case list() | tuple() | set() | frozenset():
            return [to_json(item) for item in value]
        case Mapping():
            return {str(to_json(key)): to_json(item) for key, item in value.items()}
        case _ if is_dataclass(value) and not isinstance(value, TableName):
            return fields_to_json(value)
        case _:
            return str(value)


def fields_to_json(value: DataclassInstance | type[DataclassInstance]) -> dict[str, object]:
    """The fields of a dataclass by their names; ids of snapshots as text."""
    return {each.name: _field(each.name, getattr(value, each.name)) for each in fields(value)}


def _field(name: str, value: object) -> object:
    return str(value) if name in SNAPSHOT_IDS and isinstance(value, int) else to_json(value)


def to_rows(value: object) -> list[tuple[str, str]]:
    """Name and text of every field of a dataclass; nested fields follow their parent."""
    return _rows(to_json(value), ())


def _rows(value: object, path: tuple[str, ...]) -> list[tuple[str, str]]:
    if isinstance(value, dict):
        return [row for name, item in value.items() for row in _rows(item, (*path, str(name)))]
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        numbered = enumerate(value, start=1)
        return [row for number, item in numbered for row in _rows(item, (*path, str(number)))]
    return [(".".join(path).replace("_", " "), _text(value))]


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    return str(value)
