"""Which column of the source is which field of its changelog: the property ``frazil.columns``.

Names change and come back, numbers and field ids do not. The map is written in the same commit as
the schema that it describes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from frazil.errors import UnsupportedSchemaChangeError
from frazil.model.command import command
from frazil.model.recorded_version import NEWER_STEP, newer_version
from frazil.model.table_facts import COLUMNS_PROPERTY

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 1
# Of a column of an earlier copy: its number may since belong to another one.
NO_NUMBER = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedField:
    """A column by its number at the source and its field id in the changelog.

    ``previous`` is the field id of a key column's member in the previous key. A column that the
    source dropped is ``dropped``, whether the changelog kept the field or not.
    """

    number: int
    field: int
    previous: int | None = None
    dropped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnNumbers:
    """All columns there ever were; ``key`` has numbers, ``highest`` is the highest one given.

    ``shape`` is given back to the source.
    """

    columns: tuple[NumberedField, ...] = ()
    key: tuple[int, ...] = ()
    highest: int = 0
    shape: str = ""

    @property
    def live(self) -> Mapping[int, NumberedField]:
        """The columns that the source has, by number."""
        return {each.number: each for each in self.columns if not each.dropped}

    @property
    def field_ids(self) -> frozenset[int]:
        """Every field that once was a column of the source."""
        return frozenset(each.field for each in self.columns)


def encode_column_numbers(columns: ColumnNumbers) -> str:
    """One line of JSON; the same columns always give the same text."""
    ordered = sorted(columns.columns, key=lambda each: each.field)
    document = {
        "version": VERSION,
        "key": list(columns.key),
        "highest": columns.highest,
        "shape": columns.shape,
        "columns": [_to_json(each) for each in ordered],
    }
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def decode_column_numbers(text: str, *, table: str) -> ColumnNumbers:
    """Read the property back; what is not ours is refused, because names would be a guess."""
    try:
        return _from_json(json.loads(text))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        message = (
            f"the property {COLUMNS_PROPERTY} of its changelog has no columns of version {VERSION}."
        )
        step = f"restore {COLUMNS_PROPERTY}, or run {command('resync', table)}"
        if newer_version(text, VERSION) is not None:
            step = NEWER_STEP
        raise UnsupportedSchemaChangeError(message, table=table, next_step=step) from error


def _to_json(column: NumberedField) -> dict[str, object]:
    document: dict[str, object] = {"number": column.number, "field": column.field}
    if column.previous is not None:
        document["previous"] = column.previous
    if column.dropped:
        document["dropped"] = True
    return document


def _from_json(document: Mapping[str, Any]) -> ColumnNumbers:
    if document["version"] != VERSION:
        raise ValueError(document["version"])
    columns = ColumnNumbers(
        columns=tuple(_column_from_json(each) for each in document["columns"]),
        key=tuple(int(each) for each in document["key"]),
        highest=int(document["highest"]),
        shape=_text(document["shape"]),
    )
    fields = [each.field for each in columns.columns]
    live = [each.number for each in columns.columns if not each.dropped]
    unique = len(set(fields)) == len(fields) and len(set(live)) == len(live)
    if not unique or not set(columns.key) <= set(live):
        raise ValueError(columns.key)
    return columns


def _column_from_json(document: Mapping[str, Any]) -> NumberedField:
    previous = document.get("previous")
    return NumberedField(
        number=int(document["number"]),
        field=int(document["field"]),
        previous=None if previous is None else int(previous),
        dropped=document.get("dropped") is True,
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value
