"""One change as a record's value describes it, and values that are a row of their own."""

from __future__ import annotations

from enum import Enum
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

import msgspec

from frazil.model.change import Operation
from frazil.model.records.rejected_record import RejectReason
from frazil.sources.kafscale.changes.change_sequence import SequenceField
from frazil.sources.kafscale.changes.connect_schema import (
    MAY_BE_WRAPPED,
    ConnectEncodings,
    decode_values,
    unwrap,
)
from frazil.sources.kafscale.changes.refused_record import RefusedRecordError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from frazil.sources.kafscale.changes.connect_schema import Json
    from frazil.sources.kafscale.records.json_columns import JsonColumns, JsonRow
    from frazil.sources.kafscale.records.topic_plan import TopicPlan

# Where a change does not say when it was committed, its record does.
NO_TIME = -(1 << 63)
_NEVER = (1 << 63) - 1
D = TypeVar("D")
T = TypeVar("T")
_WRAPPER = frozenset({"schema", "payload"})


class ChangeEvent(msgspec.Struct, frozen=True, gc=False):
    """A change; rows are decoded records of ``JsonColumns``.

    ``row`` is the new one, for a DELETE what is known of the old one. ``before`` is the old row of
    an update, if it came. ``position`` is None where the offset decides.
    """

    operation: Operation
    row: msgspec.Struct
    before: msgspec.Struct | None = None
    position: int | None = None
    committed_ms: int = NO_TIME

    def part(self, operation: Operation, row: JsonRow) -> ChangeEvent:
        """One of the rows that the change becomes."""
        return ChangeEvent(operation, row, None, self.position, self.committed_ms)


class WithoutChange(Enum):
    """What a value is that describes no change."""

    TOMBSTONE = "tombstone"
    """Nothing at all, for the key of its record."""
    MESSAGE = "message"
    """Something else than a row."""


class PlainValues:
    """Values that are rows: each replaces the one before it."""

    def __init__(self, plan: TopicPlan, columns: JsonColumns) -> None:
        self._decode = columns.decode
        self._encodings = ConnectEncodings(columns, plan.fields)
        self._is_never_wrapped = has_wrapper_columns(plan)
        # Without a key there is nothing to replace.
        self._operation = Operation.UPDATE if plan.key else Operation.INSERT
        self._sequence = SequenceField(plan.sequence) if plan.sequence else None

    def read(self, value: bytes) -> ChangeEvent | WithoutChange:
        """The change; raises RefusedRecordError."""
        document: Json = value
        schema: Json | None = None
        if MAY_BE_WRAPPED in value and not self._is_never_wrapped:
            schema, document = decoded(unwrap, value)
            if schema is not None and bytes(document) == b"null":
                return WithoutChange.TOMBSTONE
        row = decoded(self._decode, document)
        if schema is not None:
            decode_values(row, self._encodings.encoding(schema))
        position = None if self._sequence is None else self._sequence.read(document)
        return ChangeEvent(self._operation, row, None, position)


def has_wrapper_columns(plan: TopicPlan) -> bool:
    """Whether what could be a message with its schema may be a row of this topic."""
    return any(each.name in _WRAPPER for each in plan.fields)


def decoded(decode: Callable[[D], T], document: D) -> T:
    """What this makes of a document; RefusedRecordError if that is not JSON, or not an object."""
    try:
        return decode(document)
    except msgspec.ValidationError:
        raise RefusedRecordError("its value is not a JSON object.") from None
    except (ValueError, RecursionError):
        raise RefusedRecordError("its value is not JSON.", RejectReason.MALFORMED) from None


def values_of(attributes: Sequence[str]) -> Callable[[JsonRow], tuple[object, ...]]:
    """What has these attributes of a decoded record, in one call for all of them."""
    if not attributes:
        return lambda _: ()
    # The first one twice, because the value of a single one would come without a tuple.
    return attrgetter(attributes[0], *attributes)


def milliseconds(value: object) -> int:
    """A time as a change says it; NO_TIME if it does not."""
    if type(value) is not int:
        return NO_TIME
    # One that no column holds is not replaced by another.
    return value if -_NEVER <= value <= _NEVER else _NEVER
