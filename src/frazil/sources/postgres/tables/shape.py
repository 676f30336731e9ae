"""The columns of a table as they were last known, by number: what a relation is recognised by."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from frazil.errors import UnsupportedSchemaChangeError
from frazil.model.command import command

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class ShapeColumn:
    """A column that is sent, with everything a relation message says of it and its number."""

    number: int
    name: str
    type_oid: int
    type_modifier: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownShape:
    """The columns in the order of their numbers, and the numbers of the key.

    ``highest`` is the highest number known to be given by then, even to a column that is gone or
    not sent: columns that are new since then have higher ones. ``hidden`` are lower numbers of
    columns that were not sent, or of which it is not known.
    """

    columns: tuple[ShapeColumn, ...]
    key: tuple[int, ...]
    highest: int
    hidden: tuple[int, ...] = ()

    @property
    def numbers(self) -> tuple[int, ...]:
        """The columns' numbers, in their order."""
        return tuple(each.number for each in self.columns)


def encode_shape(shape: KnownShape) -> str:
    """One line of JSON; the same shape always gives the same text."""
    columns = [
        [each.number, each.name, each.type_oid, each.type_modifier] for each in shape.columns
    ]
    document = {
        "columns": columns,
        "hidden": list(shape.hidden),
        "highest": shape.highest,
        "key": list(shape.key),
    }
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def decode_shape(text: str, *, table: str) -> KnownShape:
    """Read a shape back; what cannot be read is refused, because names would be a guess."""
    try:
        return _from_json(json.loads(text))
    except (KeyError, TypeError, ValueError) as error:
        message = "what was recorded of the table's columns cannot be read."
        raise UnsupportedSchemaChangeError(
            message, table=table, next_step=command("resync", table)
        ) from error


def _from_json(document: Mapping[str, Any]) -> KnownShape:
    columns = tuple(
        ShapeColumn(int(number), str(name), int(type_oid), int(modifier))
        for number, name, type_oid, modifier in document["columns"]
    )
    shape = KnownShape(
        columns=columns,
        key=tuple(int(each) for each in document["key"]),
        highest=int(document["highest"]),
        hidden=tuple(int(each) for each in document["hidden"]),
    )
    numbers = shape.numbers
    in_order = all(one < other for one, other in pairwise(numbers))
    if not in_order or max((*numbers, 0)) > shape.highest or not set(shape.key) <= set(numbers):
        raise ValueError(numbers)
    return shape
