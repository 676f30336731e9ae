"""The column that orders changes: its values as Arrow, as Python, and as the marker's text."""

from __future__ import annotations

from decimal import Decimal as DecimalValue
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from frazil.errors import MarkerLostError
from frazil.model.schema.types import Decimal, Primitive

if TYPE_CHECKING:
    from frazil.model.schema.types import Scalar

# Text, integers and decimals unchanged; a timestamp as microseconds since 1970.
SequenceValue = str | int | DecimalValue


def lowest_and_highest(values: pa.Array) -> tuple[SequenceValue, SequenceValue]:
    """Minimum and maximum of an array that has values and no nulls."""
    ends = pc.min_max(comparable(values))
    return ends["min"].as_py(), ends["max"].as_py()


def comparable(values: pa.Array) -> pa.Array:
    """The same values in a form whose Python counterpart is a SequenceValue."""
    if pa.types.is_timestamp(values.type):
        return values.cast(pa.timestamp("us", values.type.tz)).view(pa.int64())
    if pa.types.is_date(values.type):
        return values.view(pa.int32())
    return values


def scalar_like(value: SequenceValue, values: pa.Array) -> pa.Scalar:
    """The value as a scalar that Arrow compares with ``comparable(values)``."""
    return pa.scalar(value, comparable(values).type)


def encode_sequence(value: SequenceValue) -> str:
    """The value as a marker keeps it."""
    return str(value)


def decode_sequence(text: str | None, type_: Scalar) -> SequenceValue | None:
    """What a marker keeps as a value that compares; raises MarkerLostError for anything else."""
    if text is None:
        return None
    try:
        match type_:
            case Primitive.STRING:
                return text
            case Decimal():
                return DecimalValue(text)
            case _:
                return int(text)
    except (ArithmeticError, ValueError) as error:
        message = "the marker's sequence is not of the sequence column's type."
        raise MarkerLostError(message, next_step="frazil position show") from error
