"""Messages that carry their own schema, as the JSON converter of Kafka Connect writes them.

JSON has fewer types than Connect: times come as numbers, bytes and decimals as base64. A schema
says which, so that values can be read as what they are.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from frazil.config.models.kafscale_source import Envelope, TopicColumn
from frazil.config.models.kafscale_source import TopicColumnType as Type
from frazil.sources.kafscale.records.json_columns import Microseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from frazil.sources.kafscale.records.json_columns import JsonColumns, JsonRow

Json: TypeAlias = bytes | msgspec.Raw
Encoding: TypeAlias = "tuple[tuple[str, Callable[[object], object]], ...]"

MAY_BE_WRAPPED = b'"payload"'
# What flattening adds to a row begins with this.
ADDED = "__"
_OPERATION_FIELDS = frozenset({"__op", "__deleted"})
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_MICROSECONDS_OF_DAY = 86_400_000_000
# How many microseconds, or parts of one, a number of a type counts.
_MICROSECONDS = {
    "io.debezium.time.MicroTimestamp": (1, 1),
    "io.debezium.time.NanoTimestamp": (1, 1000),
    "io.debezium.time.Timestamp": (1000, 1),
    "org.apache.kafka.connect.data.Timestamp": (1000, 1),
    "io.debezium.time.Date": (_MICROSECONDS_OF_DAY, 1),
    "org.apache.kafka.connect.data.Date": (_MICROSECONDS_OF_DAY, 1),
}
_TYPES_BY_NAME = {
    "io.debezium.time.MicroTimestamp": Type.TIMESTAMP,
    "io.debezium.time.NanoTimestamp": Type.TIMESTAMP,
    "io.debezium.time.Timestamp": Type.TIMESTAMP,
    "io.debezium.time.ZonedTimestamp": Type.TIMESTAMP,
    "org.apache.kafka.connect.data.Timestamp": Type.TIMESTAMP,
    "io.debezium.time.Date": Type.DATE,
    "org.apache.kafka.connect.data.Date": Type.DATE,
    _DECIMAL: Type.STRING,
}
_TYPES = {
    "int8": Type.INT,
    "int16": Type.INT,
    "int32": Type.INT,
    "int64": Type.LONG,
    "float": Type.FLOAT,
    "double": Type.DOUBLE,
    "boolean": Type.BOOLEAN,
    "string": Type.STRING,
    "bytes": Type.BINARY,
}
# Far more digits than a database stores, few enough to print.
_MOST_DECIMAL_BYTES = 1024
_MOST_SCALE = 2048
# A topic has few schemas; more than these at a time are read again.
_MOST_SCHEMAS = 64
# No column takes it: the value of a message that is not what its own schema says.
_UNREADABLE = object()


class _Message(msgspec.Struct, gc=False):
    schema: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    payload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_decode_message = msgspec.json.Decoder(_Message).decode


def unwrap(message: bytes) -> tuple[Json | None, Json]:
    """The schema that a message brings along, and its payload; None and itself if it has none.

    Raises ValueError or RecursionError if it is not JSON.
    """
    if MAY_BE_WRAPPED in message:
        try:
            found = _decode_message(message)
        except msgspec.ValidationError:
            # Not an object.
            return None, message
        schema, payload = found.schema, found.payload
        if isinstance(schema, msgspec.Raw) and isinstance(payload, msgspec.Raw):
            return (schema, payload) if _is_schema(schema) else (None, message)
    return None, message


def _is_schema(found: msgspec.Raw) -> bool:
    # Null is what data without a schema has.
    return bytes(found) == b"null" or b'"type"' in bytes(found)


def own_columns(value: bytes, envelope: Envelope) -> tuple[TopicColumn, ...] | None:
    """The columns that a message declares for its row; None if it has no schema of a row.

    None of them is required: a later message may leave one out.
    """
    try:
        schema, _ = unwrap(value)
        document = msgspec.json.decode(schema) if schema is not None else None
    except (ValueError, RecursionError):
        return None
    declared = _row_fields(document, is_wrapped=envelope is Envelope.DEBEZIUM)
    if declared is None:
        return None
    if envelope is Envelope.DEBEZIUM and _OPERATION_FIELDS & declared.keys():
        declared = {name: each for name, each in declared.items() if not name.startswith(ADDED)}
    return tuple(
        TopicColumn(name=name, type=type_)
        for name, each in declared.items()
        if name.strip() and (type_ := _column_type(each)) is not None
    )


class ConnectEncodings:
    """How values of the columns of one topic are written, by the schemas of its messages."""

    def __init__(self, columns: JsonColumns, fields: Sequence[TopicColumn]) -> None:
        self._fields = {each.name: (columns.attribute(each.name), each.type) for each in fields}
        self._known: dict[tuple[bytes, bool], Encoding] = {}

    def encoding(self, schema: Json | None, *, is_envelope: bool = False) -> Encoding:
        """What ``decode_values`` does for rows of messages with this schema; often nothing."""
        if schema is None:
            return ()
        key = bytes(schema), is_envelope
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _MOST_SCHEMAS:
                self._known.clear()
            found = self._known[key] = tuple(self._read(key[0], is_envelope=is_envelope))
        return found

    def scalar(self, schema: Json | None, value: object, type_: Type) -> object:
        """A value that is a whole message, for a column of this type."""
        declared = None if schema is None else msgspec.json.decode(schema)
        decode = _decoder(declared, type_) if isinstance(declared, dict) else None
        return value if decode is None or value is None else decode(value)

    def _read(
        self, schema: bytes, *, is_envelope: bool
    ) -> Iterator[tuple[str, Callable[[object], object]]]:
        try:
            document = msgspec.json.decode(schema)
        except (ValueError, RecursionError):
            return
        declared = _row_fields(document, is_wrapped=is_envelope) or {}
        for name, (attribute, type_) in self._fields.items():
            decode = _decoder(declared.get(name, {}), type_)
            if decode is not None:
                yield attribute, decode


def decode_values(row: JsonRow, encoding: Encoding) -> None:
    """Replace the values of a decoded record by what they stand for."""
    for attribute, decode in encoding:
        value = getattr(row, attribute)
        if value is not None:
            setattr(row, attribute, decode(value))


def _row_fields(schema: object, *, is_wrapped: bool) -> Mapping[str, Mapping[str, Any]] | None:
    """The fields of a row by name; of a change event those of the row after it."""
    fields = _fields(schema)
    if is_wrapped and fields is not None and "op" in fields and {"after", "before"} & fields.keys():
        return _fields(fields.get("after")) or _fields(fields.get("before"))
    return fields


def _fields(schema: object) -> dict[str, Mapping[str, Any]] | None:
    listed = schema.get("fields") if isinstance(schema, dict) else None
    if not isinstance(listed, list):
        return None
    objects = (each for each in listed if isinstance(each, dict))
    return {name: each for each in objects if isinstance(name := each.get("field"), str)}


def _column_type(declared: Mapping[str, Any]) -> Type | None:
    name, type_ = declared.get("name"), declared.get("type")
    if isinstance(name, str) and name in _TYPES_BY_NAME:
        return _TYPES_BY_NAME[name]
    return _TYPES.get(type_) if isinstance(type_, str) else None


def _decoder(declared: Mapping[str, Any], type_: Type) -> Callable[[object], object] | None:
    """What a value in JSON is made into for a column; None if it is taken as it is."""
    name = declared.get("name")
    if not isinstance(name, str):
        name = ""
    if type_ in {Type.TIMESTAMP, Type.DATE} and name in _MICROSECONDS:
        return _time_decoder(*_MICROSECONDS[name], type_)
    if type_ is Type.STRING and name == _DECIMAL:
        return _decimal_decoder(declared.get("parameters"))
    if type_ is Type.BINARY and declared.get("type") == "bytes":
        return _octets
    return None


def _time_decoder(unit: int, parts: int, type_: Type) -> Callable[[object], object]:
    def timestamp(value: object) -> object:
        # What is not a whole number is left to the rules of JSON.
        return Microseconds(value * unit // parts) if type(value) is int else value

    def day(value: object) -> object:
        return value * unit // (parts * _MICROSECONDS_OF_DAY) if type(value) is int else value

    return timestamp if type_ is Type.TIMESTAMP else day


def _octets(value: object) -> object:
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else _UNREADABLE
    except ValueError:
        return _UNREADABLE


def _decimal_decoder(parameters: object) -> Callable[[object], object]:
    text = parameters.get("scale") if isinstance(parameters, dict) else None
    try:
        scale = int(str(text))
    except ValueError:
        scale = _MOST_SCALE + 1

    def decimal(value: object) -> object:
        octets = _octets(value)
        if not isinstance(octets, bytes) or not 0 < len(octets) <= _MOST_DECIMAL_BYTES:
            return _UNREADABLE
        return _decimal_text(int.from_bytes(octets, "big", signed=True), scale)

    return decimal if abs(scale) <= _MOST_SCALE else lambda _: _UNREADABLE


def _decimal_text(unscaled: int, scale: int) -> str:
    """All digits, and never an exponent."""
    sign = "-" if unscaled < 0 else ""
    digits = str(abs(unscaled))
    if scale <= 0:
        return f"{sign}{digits}{'0' * -scale if unscaled else ''}"
    digits = digits.rjust(scale + 1, "0")
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}"
