"""Changes inside the Spark job of a merge: their columns, their order, and why one is refused."""

from __future__ import annotations

from contextlib import contextmanager
from decimal import Decimal as DecimalValue
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from frazil import errors
from frazil.model.command import command
from frazil.model.schema.types import Decimal, Primitive

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.model.schema.types import Scalar

# Text, integers and decimals unchanged; a timestamp as microseconds since 1970.
SequenceValue = str | int | DecimalValue
APPEND_STEP = "set order: append for this table"

# The columns that a merge adds in front of the mirror's own. Their names are refused in changelogs
# (``model.schema.reserved_names``): they would be ambiguous.
HI, LO = "__frazil_hi", "__frazil_lo"
# 0 is an upsert, 1 a delete, 2 a TRUNCATE, which has no key and never reaches the fold.
ACTION = "__frazil_action"
SEQUENCE = "__frazil_sequence"
IS_UPDATE = "__frazil_is_update"
UNCHANGED = "__frazil_unchanged"
PREVIOUS_HI, PREVIOUS_LO = "__frazil_previous_hi", "__frazil_previous_lo"
# Set on changes that were merged before: replays are compared with them.
MERGED = "__frazil_merged"

UPSERT, DELETE, TRUNCATE = 0, 1, 2


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
        raise errors.MarkerLostError(message, next_step="frazil position show") from error


@contextmanager
def naming_repairs(table: str) -> Iterator[None]:
    """Add the repair command to a task's error; a task does not know the name of the mirror."""
    try:
        yield
    except errors.MissingImageError as error:
        error.next_step = error.next_step or command("resync", table)
        raise
    except errors.DuplicateKeyError as error:
        repair = (
            f"correct the changes whose key and sequence repeat, then {command('resync', table)}"
        )
        error.next_step = error.next_step or repair
        raise
    except errors.NullKeyError as error:
        repair = f"choose another key, or correct the changes, then {command('resync', table)}"
        error.next_step = error.next_step or repair
        raise


def unknown_operations(count: int) -> errors.MalformedChangeError:
    """The operation column has unknown values."""
    message = f"{count} rows have an operation that is not known."
    return errors.MalformedChangeError(
        message, next_step="name the right column in tables[].operation"
    )


def missing_sequences(count: int) -> errors.MalformedChangeError:
    """The sequence column has nulls."""
    message = f"{count} rows have no sequence."
    return errors.MalformedChangeError(
        message, next_step="name the right column in tables[].sequence"
    )


def null_keys(count: int) -> errors.NullKeyError:
    """A key column has nulls."""
    error = errors.NullKeyError(f"{count} changes have a null in a key column.")
    error.in_changes = True
    return error


def partial_rows(count: int) -> errors.MissingImageError:
    """Columns were left out, and with order per_key the previous row is not known."""
    message = f"{count} rows left columns out, which order per_key cannot complete."
    return errors.MissingImageError(message, next_step=APPEND_STEP)
