"""The field that orders the changes of one key, where their offsets do not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from frazil.sources.kafscale.changes.refused_record import RefusedRecordError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frazil.sources.kafscale.changes.connect_schema import Json

_POSITIONS = range(1 << 64)
_DIGITS = re.compile(r"\d{1,20}", re.ASCII)
# As Postgres prints it: two halves of 32 bits.
_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})", re.ASCII)


class SequenceField:
    """Reads the position of a change from the field at a path, the outermost name first."""

    def __init__(self, path: Sequence[str]) -> None:
        self._name = ".".join(path)
        self._depth = len(path)
        inner: Any = Any
        for name in reversed(path):
            # An attribute of one name, because any text may be a field.
            fields = [("inner", inner, None)]
            level: Any = msgspec.defstruct("Level", fields, rename={"inner": name}, gc=False)
            inner = level | None
        self._decode = msgspec.json.Decoder(inner).decode

    def read(self, document: Json) -> int:
        """Its value as a number; RefusedRecordError if the document has no usable one."""
        try:
            found: Any = self._decode(document)
        except (ValueError, RecursionError):
            found = None
        for _ in range(self._depth):
            found = None if found is None else found.inner
        position = _position(found)
        if position is None:
            message = f"field {self._name}, which orders changes, is missing or not a position."
            raise RefusedRecordError(message)
        return position


def _position(value: object) -> int | None:
    if isinstance(value, str):
        lsn = _LSN.fullmatch(value)
        if lsn:
            return int(lsn[1], 16) << 32 | int(lsn[2], 16)
        value = int(value) if _DIGITS.fullmatch(value) else None
    return value if type(value) is int and value in _POSITIONS else None
