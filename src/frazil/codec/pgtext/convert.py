"""The text that Postgres prints for a column, turned into Arrow's values: exactly, or not at all.

Both the copy and the stream bring text, and both convert it here. Their sessions are pinned with
``SESSION_SETTINGS``, whatever a database or a role has set, so that text has one meaning. Dates,
timestamps and bytes from a session that is not pinned are refused here.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from frazil.codec.pgtext.arrays import read_arrays
from frazil.codec.pgtext.grammar import NotAsPrintedError, Read, parse_all
from frazil.codec.pgtext.scalars import (
    read_booleans,
    read_bytea,
    read_dates,
    read_floats,
    read_integers,
    read_numerics,
    read_timestamps,
    read_timestamps_as_utc,
    read_timestamptzs,
    read_uuids,
)
from frazil.errors import MalformedChangeError, UnrepresentableValueError
from frazil.model.policy import OnUnrepresentable
from frazil.model.postgres.types import ArrayForm, Form
from frazil.model.schema.types import Decimal, List, Primitive

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from frazil.model.postgres.types import ColumnPlan
    from frazil.model.schema.types import Type

SESSION_SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "timezone": "UTC",
        "datestyle": "ISO,YMD",
        "intervalstyle": "postgres",
        "client_encoding": "UTF8",
        "bytea_output": "hex",
        # Anything above 0 means the shortest digits that give the very number back.
        "extra_float_digits": "3",
        # Types such as regclass print names, in full unless their schema is on the path; the
        # server's own schema always is.
        "search_path": "",
        "quote_all_identifiers": "off",
        # Money is printed with two digits and a dollar, whatever the server's locale makes of it.
        "lc_monetary": "C",
        "lc_numeric": "C",
        "lc_time": "C",
        "xmlbinary": "base64",
        "xmloption": "content",
        "array_nulls": "on",
    }
)


@dataclass(frozen=True, slots=True)
class Converted:
    """A column's values; ``nulled`` of them are null by policy and not at the source."""

    values: pa.Array
    nulled: int = 0


def convert(text: pa.StringArray, column: ColumnPlan) -> Converted:
    """The values that were printed, as the column's type holds them; null stays null.

    Raises UnrepresentableValueError when values do not fit and the policy is not to null them, and
    MalformedChangeError when text is not what Postgres prints for the type.
    """
    try:
        read = _read(text, column.type, column.form)
    except NotAsPrintedError as error:
        strange = error.count
    else:
        return by_policy(read, column)
    raise malformed(column, strange)


def by_policy(read: Read, column: ColumnPlan) -> Converted:
    """The values with nulls for what does not fit, if the column's policy allows that.

    Raises UnrepresentableValueError otherwise.
    """
    if read.misfits is None:
        return Converted(read.values)
    count = int(np.count_nonzero(read.misfits))
    if column.on_unrepresentable is OnUnrepresentable.NULL:
        return Converted(read.values, nulled=count)
    message = (
        f"column {column.name!r}: {count} of {len(read.values)} values of the Postgres type "
        f"{column.source} do not fit {column.type}: {_why(column.form)}"
    )
    step = f"set on_unrepresentable to string or null for {column.name!r}, or declare its type"
    raise UnrepresentableValueError(message, next_step=step)


def _read(text: pa.StringArray, type_: Type, form: Form | ArrayForm) -> Read:
    if isinstance(form, ArrayForm) and isinstance(type_, List):
        element = type_.element.type
        return read_arrays(text, form.delimiter, lambda each: _read(each, element, form.element))
    match form, type_:
        case Form.NUMERIC, Decimal():
            return read_numerics(text, type_)
        case Form(), Primitive() if (form, type_) in _READERS:
            return _READERS[form, type_](text)
        case _:
            message = f"no value printed as {form} can be read as {type_}"
            raise TypeError(message)


def _as_printed(text: pa.StringArray) -> Read:
    """The text itself; only its encoding is checked."""
    return Read(parse_all(text, _encoded_right))


def _encoded_right(text: pa.StringArray) -> pa.StringArray:
    text.validate(full=True)
    return text


_READERS: Mapping[tuple[Form, Primitive], Callable[[pa.StringArray], Read]] = {
    (Form.AS_PRINTED, Primitive.STRING): _as_printed,
    (Form.BOOLEAN, Primitive.BOOLEAN): read_booleans,
    (Form.INTEGER, Primitive.INT): lambda text: read_integers(text, pa.int32()),
    (Form.INTEGER, Primitive.LONG): lambda text: read_integers(text, pa.int64()),
    (Form.REAL, Primitive.FLOAT): lambda text: read_floats(text, pa.float32(), pa.float32()),
    (Form.REAL, Primitive.DOUBLE): lambda text: read_floats(text, pa.float32(), pa.float64()),
    (Form.DOUBLE, Primitive.DOUBLE): lambda text: read_floats(text, pa.float64(), pa.float64()),
    (Form.DATE, Primitive.DATE): read_dates,
    (Form.TIMESTAMP, Primitive.TIMESTAMP): read_timestamps,
    (Form.TIMESTAMP, Primitive.TIMESTAMPTZ): read_timestamps_as_utc,
    (Form.TIMESTAMPTZ, Primitive.TIMESTAMPTZ): read_timestamptzs,
    (Form.UUID, Primitive.UUID): read_uuids,
    (Form.BYTEA, Primitive.BINARY): read_bytea,
}


def _why(form: Form | ArrayForm) -> str:
    """What there is at the source that Iceberg lacks."""
    if isinstance(form, ArrayForm):
        return "several dimensions, lower bounds other than 1, or elements that do not fit"
    if form is Form.NUMERIC:
        return "NaN, infinite, or more digits than the type has"
    return "infinite, before the year 1 or after 9999"


def malformed(column: ColumnPlan, count: int) -> MalformedChangeError:
    """So many values are not as such a session gives them."""
    message = (
        f"column {column.name!r}: {count} values are not what Postgres prints for {column.source} "
        f"in a session with frazil's settings"
    )
    return MalformedChangeError(message, next_step="run `frazil check`")
