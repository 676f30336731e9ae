"""The key columns as the key of a record has them, for values that lack them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from frazil.config.models.kafscale_source import TopicColumnType
from frazil.sources.kafscale.changes.change_event import has_wrapper_columns, values_of
from frazil.sources.kafscale.changes.connect_schema import ConnectEncodings, decode_values, unwrap

if TYPE_CHECKING:
    from frazil.config.models.kafscale_source import TopicColumn
    from frazil.sources.kafscale.records.json_columns import JsonColumns, JsonRow
    from frazil.sources.kafscale.records.topic_plan import TopicPlan

_WHOLE_NUMBER = re.compile(r"-?\d{1,19}", re.ASCII)
_NUMBERS = frozenset({TopicColumnType.INT, TopicColumnType.LONG})
_TEXTS = frozenset({TopicColumnType.STRING, TopicColumnType.BINARY})


class RecordKeys:
    """Reads keys of one topic: a JSON object, or for a single column its value alone.

    That value may be JSON or simple text; for a column of text it is the text as it is, unless it
    is a JSON string.
    """

    def __init__(self, plan: TopicPlan, columns: JsonColumns) -> None:
        names = {each.number: each.name for each in plan.columns}
        fields = {each.name: each for each in plan.fields}
        self._fields: tuple[TopicColumn, ...] = tuple(fields[names[each]] for each in plan.key)
        self.attributes = tuple(columns.attribute(each.name) for each in self._fields)
        self.values = values_of(self.attributes)
        """The key of a decoded record."""
        self._columns = columns
        self._encodings = ConnectEncodings(columns, self._fields)
        self._is_never_wrapped = has_wrapper_columns(plan)

    def complete(self, row: JsonRow, key: bytes | None) -> None:
        """Set the key columns that a decoded record lacks, as far as its key has them."""
        if key is None:
            return
        found = self._read(key)
        for attribute in self.attributes:
            if getattr(row, attribute) is None:
                setattr(row, attribute, getattr(found, attribute))

    def only(self, row: JsonRow) -> JsonRow:
        """A decoded record with the key columns of this one."""
        alone = self._columns.row_type()
        for attribute in self.attributes:
            setattr(alone, attribute, getattr(row, attribute))
        return alone

    def _read(self, key: bytes) -> JsonRow:
        try:
            return self._read_json(key)
        except (ValueError, RecursionError):
            return self._alone(_text(key), key)

    def _read_json(self, key: bytes) -> JsonRow:
        schema, document = (None, key) if self._is_never_wrapped else unwrap(key)
        try:
            row = self._columns.decode(document)
        except msgspec.ValidationError:
            value = msgspec.json.decode(document)
            if schema is not None and len(self._fields) == 1:
                value = self._encodings.scalar(schema, value, self._fields[0].type)
            return self._alone(value, None if schema is not None else key)
        decode_values(row, self._encodings.encoding(schema))
        return row

    def _alone(self, value: object, key: bytes | None) -> JsonRow:
        """The value of a single key column; ``key`` are its bytes, if they may be text."""
        row = self._columns.row_type()
        if len(self._fields) != 1:
            return row
        type_ = self._fields[0].type
        if type_ in _TEXTS and key is not None and value is not None:
            value = value if isinstance(value, str) else _text(key)
        elif type_ in _NUMBERS and isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value):
            value = int(value)
        setattr(row, self.attributes[0], value)
        return row


def _text(key: bytes) -> str | None:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return None
