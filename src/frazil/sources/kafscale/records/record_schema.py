"""The JSON Schema of a topic: whether records match it, and the columns it declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jsonschema_rs
import msgspec

from frazil.config.models.kafscale_source import TopicColumn, TopicColumnType
from frazil.errors import ConfigError

# Compiled from what a registry sends: matching must not take longer than the text is long.
_PATTERNS = jsonschema_rs.RegexOptions()
_COLUMN_TYPES = {
    "integer": TopicColumnType.LONG,
    "number": TopicColumnType.DOUBLE,
    "boolean": TopicColumnType.BOOLEAN,
    "string": TopicColumnType.STRING,
}


class RecordSchema:
    """One compiled schema; ``topic`` is for errors. Made to travel."""

    def __init__(self, topic: str, text: bytes) -> None:
        self._topic, self._text = topic, text
        try:
            self._document: Any = msgspec.json.decode(text)
            self._validator = jsonschema_rs.validator_for(
                self._document,
                # Nothing is fetched or opened that a schema names.
                offline=True,
                pattern_options=_PATTERNS,
            )
        except (ValueError, RecursionError) as error:
            message = f"the registry's schema of topic {topic} cannot be used."
            raise ConfigError(message, next_step="correct it in the registry") from error

    def __reduce__(self) -> tuple[object, ...]:
        # What is compiled stays here.
        return RecordSchema, (self._topic, self._text)

    def problem(self, value: bytes | None) -> str | None:
        """The rule that a value breaks, as a path in the schema; None for valid and empty ones."""
        if not value:
            return None
        try:
            document = msgspec.json.decode(value)
        except (ValueError, RecursionError):
            return "json"
        if self._validator.is_valid(document):
            return None
        error = next(self._validator.iter_errors(document), None)
        # Not its message, which quotes the value.
        return "/".join(map(str, error.schema_path)) if error is not None else "schema"

    def columns(self) -> tuple[TopicColumn, ...]:
        """Its properties of one simple type, ordered by name; ConfigError if it has none."""
        document = self._document if isinstance(self._document, Mapping) else {}
        properties = document.get("properties")
        required = document.get("required")
        found = [
            TopicColumn(
                name=name,
                type=column_type,
                required=isinstance(required, list) and name in required,
            )
            for name, declared in sorted((properties or {}).items())
            if (column_type := _column_type(declared)) is not None
        ]
        if not found:
            message = f"the registry's schema of topic {self._topic} declares no simple property."
            next_step = "declare source.topics[].columns, or columns_from: none"
            raise ConfigError(message, next_step=next_step)
        return tuple(found)


def _column_type(declared: object) -> TopicColumnType | None:
    kind = declared.get("type") if isinstance(declared, Mapping) else None
    if isinstance(kind, list):
        kind = next((each for each in kind if each != "null"), None)
    return _COLUMN_TYPES.get(kind) if isinstance(kind, str) else None
