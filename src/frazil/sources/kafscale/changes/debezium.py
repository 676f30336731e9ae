"""Change events of Debezium: in their envelope, or flattened to the row.

Either may come with a schema of its own around it. Which one it is, is decided for each record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from frazil.config.models.kafscale_source import TopicColumnType
from frazil.model.change import Operation
from frazil.model.records.rejected_record import RejectReason
from frazil.sources.kafscale.changes.change_event import (
    NO_TIME,
    ChangeEvent,
    WithoutChange,
    decoded,
    milliseconds,
    values_of,
)
from frazil.sources.kafscale.changes.change_sequence import SequenceField
from frazil.sources.kafscale.changes.connect_schema import ADDED, ConnectEncodings, decode_values
from frazil.sources.kafscale.changes.refused_record import RefusedRecordError

if TYPE_CHECKING:
    from collections.abc import Callable

    from frazil.sources.kafscale.changes.connect_schema import Encoding, Json
    from frazil.sources.kafscale.records.json_columns import JsonColumns, JsonRow
    from frazil.sources.kafscale.records.topic_plan import TopicPlan

# What stands for a value that the database did not send, and the same as bytes are written.
_PLACEHOLDER = "__debezium_unavailable_value"
_PLACEHOLDERS = (
    _PLACEHOLDER,
    "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==",
    _PLACEHOLDER.encode().hex(),
)
_MESSAGE = "m"
_OPERATIONS = {
    "c": Operation.INSERT,
    "r": Operation.READ,
    "u": Operation.UPDATE,
    "d": Operation.DELETE,
    "t": Operation.TRUNCATE,
    _MESSAGE: None,
}
# These have no row, and come without "before" and "after".
_WITHOUT_ROW = ("t", _MESSAGE)
_UNSET = msgspec.UNSET
_Raw = msgspec.Raw | msgspec.UnsetType


class _Source(msgspec.Struct, gc=False):
    ts_ms: Any = None


class _Marks(msgspec.Struct, gc=False):
    """The fields that say what a value is."""

    op: Any = _UNSET
    schema: _Raw = _UNSET
    payload: _Raw = _UNSET
    flat_op: Any = msgspec.field(default=_UNSET, name="__op")
    flat_deleted: Any = msgspec.field(default=_UNSET, name="__deleted")
    flat_time: Any = msgspec.field(default=None, name="__source_ts_ms")


class _AnyValue(_Marks, gc=False):
    """A value in which the fields of an envelope may be columns with the same names."""

    before: _Raw = _UNSET
    after: _Raw = _UNSET
    source: _Raw = _UNSET


_decode_any: Callable[[Json], _AnyValue] = msgspec.json.Decoder(_AnyValue).decode


class _Value(_Marks, gc=False):
    """A value with its rows, which are of the topic."""

    before: msgspec.Struct | msgspec.UnsetType | None = _UNSET
    after: msgspec.Struct | msgspec.UnsetType | None = _UNSET
    source: _Source | msgspec.UnsetType | None = _UNSET


class DebeziumValues:
    """Reads the values of one topic."""

    def __init__(self, plan: TopicPlan, columns: JsonColumns) -> None:
        self._decode_row, self._row_type = columns.decode, columns.row_type
        row = columns.row_type | None | msgspec.UnsetType
        fields = [("before", row, _UNSET), ("after", row, _UNSET)]
        value_type: Any = msgspec.defstruct("TopicValue", fields, bases=(_Value,), gc=False)
        self._decode: Callable[[Json], _Value] = msgspec.json.Decoder(value_type).decode
        self._encodings = ConnectEncodings(columns, plan.fields)
        self._placeholders = _Placeholders(plan, columns)
        path = plan.sequence
        self._sequence = SequenceField(path) if path else None
        # source.lsn is __source_lsn when it is flattened.
        is_flat = len(path) <= 1 or path[0].startswith(ADDED)
        self._flat_sequence = (
            self._sequence if is_flat else SequenceField((ADDED + "_".join(path),))
        )

    def read(self, value: bytes) -> ChangeEvent | WithoutChange:
        """The change; raises RefusedRecordError."""
        document: Json = value
        schema: Json | None = None
        found = self._decoded(document)
        if found.op is not _UNSET and (found.after is not _UNSET or found.before is not _UNSET):
            # Most are in a plain envelope.
            return self._read_envelope(found, document, None)
        if (wrapped := _wrapped(found)) is not None:
            schema, document = wrapped
            if bytes(document) == b"null":
                return WithoutChange.TOMBSTONE
            found = self._decoded(document)
        if _is_envelope(found):
            return self._read_envelope(found, document, schema)
        if _is_flattened(found):
            return self._read_flattened(found, document, schema)
        raise RefusedRecordError("its value is no change event: neither op nor __op nor __deleted.")

    def _read_envelope(
        self, found: _Value, document: Json, schema: Json | None
    ) -> ChangeEvent | WithoutChange:
        operation = _operation(found.op)
        if operation is None:
            return WithoutChange.MESSAGE
        before = found.before or None
        if operation is Operation.DELETE or operation is Operation.TRUNCATE:
            row = before or self._row_type()
        elif found.after:
            row = found.after
            self._placeholders.replace(row, before)
        else:
            raise RefusedRecordError("the change event has no row after the change.")
        if schema is not None:
            _decode_rows(row, before, self._encodings.encoding(schema, is_envelope=True))
        position = None if self._sequence is None else self._sequence.read(document)
        committed_ms = milliseconds(found.source.ts_ms) if found.source else NO_TIME
        return ChangeEvent(operation, row, before, position, committed_ms)

    def _read_flattened(
        self, found: _Value, document: Json, schema: Json | None
    ) -> ChangeEvent | WithoutChange:
        operation = _flat_operation(found)
        if operation is None:
            return WithoutChange.MESSAGE
        row = decoded(self._decode_row, document)
        if operation is not Operation.DELETE:
            self._placeholders.replace(row, None)
        decode_values(row, self._encodings.encoding(schema))
        position = None if self._flat_sequence is None else self._flat_sequence.read(document)
        return ChangeEvent(operation, row, None, position, milliseconds(found.flat_time))

    def _decoded(self, document: Json) -> _Value:
        try:
            return self._decode(document)
        except (ValueError, RecursionError):
            found = decoded(_decode_any, document)
        if _is_envelope(found):
            raise RefusedRecordError("before, after or source is not a JSON object.")
        # A row, in which these are columns.
        return _Value(**{each: getattr(found, each) for each in _Marks.__struct_fields__})


class _Placeholders:
    """Puts old values where only a placeholder came, which must never be stored."""

    def __init__(self, plan: TopicPlan, columns: JsonColumns) -> None:
        texts = {TopicColumnType.STRING: _PLACEHOLDERS[:1], TopicColumnType.BINARY: _PLACEHOLDERS}
        self._columns = tuple(
            (each.name, columns.attribute(each.name), texts[each.type])
            for each in plan.fields
            if each.type in texts
        )
        self._values = values_of([attribute for _, attribute, _ in self._columns])
        has_bytes = any(len(each) > 1 for _, _, each in self._columns)
        self._texts = _PLACEHOLDERS if has_bytes else _PLACEHOLDERS[:1]

    def replace(self, row: JsonRow, before: JsonRow | None) -> None:
        values = self._values(row)
        for text in self._texts:
            if text in values:
                self._replace(row, before)

    def _replace(self, row: JsonRow, before: JsonRow | None) -> None:
        for name, attribute, texts in self._columns:
            if getattr(row, attribute) not in texts:
                continue
            # Where the old row came without the value, it has a null.
            old = None if before is None else getattr(before, attribute)
            if old is None or old in texts:
                message = (
                    f"column {name} was not sent, because it is large and did not change. "
                    f"Set REPLICA IDENTITY FULL for the table at the source."
                )
                raise RefusedRecordError(message, RejectReason.UNREPRESENTABLE)
            setattr(row, attribute, old)


def _is_envelope(found: _Value | _AnyValue) -> bool:
    if found.op is _UNSET:
        return False
    if found.before is not _UNSET or found.after is not _UNSET:
        return True
    return found.source is not _UNSET and found.op in _WITHOUT_ROW and not _is_flattened(found)


def _is_flattened(found: _Marks) -> bool:
    return found.flat_op is not _UNSET or found.flat_deleted is not _UNSET


def _wrapped(found: _Value) -> tuple[msgspec.Raw, msgspec.Raw] | None:
    """The schema and the payload of a value that has them and is no event itself."""
    if isinstance(found.payload, msgspec.UnsetType) or isinstance(found.schema, msgspec.UnsetType):
        return None
    is_event = _is_envelope(found) or _is_flattened(found)
    return None if is_event else (found.schema, found.payload)


def _operation(letter: object) -> Operation | None:
    if not isinstance(letter, str) or letter not in _OPERATIONS:
        raise RefusedRecordError("the change event has an unknown operation.")
    return _OPERATIONS[letter]


def _flat_operation(found: _Value) -> Operation | None:
    if found.flat_deleted is True or found.flat_deleted == "true":
        return Operation.DELETE
    # Without its letter, it may be the first or a later one.
    return Operation.UPDATE if found.flat_op in (_UNSET, None) else _operation(found.flat_op)


def _decode_rows(row: JsonRow, before: JsonRow | None, encoding: Encoding) -> None:
    decode_values(row, encoding)
    if before is not None and before is not row:
        decode_values(before, encoding)
