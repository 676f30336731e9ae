"""Partition values as text: in the paths of files, as Iceberg chooses them, and in descriptors."""

from __future__ import annotations

import base64
import decimal
import uuid
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote_plus

import numpy as np

from frazil.clients.iceberg.write.partition_values import hash_text
from frazil.model.schema.partitioning import TransformKind
from frazil.model.schema.types import Primitive

if TYPE_CHECKING:
    from collections.abc import Callable

    from frazil.clients.iceberg.write.write_target import HashedPaths, WriteTarget
    from frazil.model.schema.types import Scalar

# As Iceberg holds them: days since 1970 for dates, micro- or nanoseconds for times and timestamps.
PartitionValue = bool | int | float | str | bytes | decimal.Decimal | uuid.UUID | None

_EPOCH_YEAR = 1970
_SECONDS_A_DAY = 86_400
_LAST_PLAIN_YEAR = 9999
# Java prints numbers in this range without an exponent.
_PLAIN_FROM, _PLAIN_TO = 1e-3, 1e7
# Iceberg's layout: the last twenty bits as three folders of four and one of eight.
_HASH_BITS = 20
_FOLDERS = (slice(0, 4), slice(4, 8), slice(8, 12), slice(12, 20))


def path_part(name: str, text: str) -> str:
    """``name=text``, both encoded as Iceberg's paths encode them."""
    return f"{_encoded(name)}={_encoded(text)}"


def human_text(value: PartitionValue, kind: TransformKind, type_: Scalar) -> str:
    """The value as it appears in a path; ``type_`` is the type of the transform's result."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return _java_number(np.float32(value) if type_ is Primitive.FLOAT else np.float64(value))
    if isinstance(value, int):
        return _human_integer(value, kind, type_)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)


def _human_integer(value: int, kind: TransformKind, type_: Scalar) -> str:
    if kind in _ORDINALS:
        return _ORDINALS[kind](value)
    if type_ is Primitive.DATE:
        return _date(value, expanded=False)
    if type_ is Primitive.TIME:
        return _short_time(value)
    return str(json_form(value, type_))


def json_form(value: PartitionValue, type_: Scalar) -> str | int | float | bool | None:
    """The value in Iceberg's single-value JSON."""
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, bytes):
        return value.hex().upper()
    if isinstance(value, int) and isinstance(type_, Primitive) and type_ in _JSON_TEXTS:
        return _JSON_TEXTS[type_](value)
    return value


def _encoded(text: str) -> str:
    # Java's form encoding leaves ``*`` alone and escapes ``~``; Python's does the opposite.
    return quote_plus(text, safe="*").replace("~", "%7E")


def _year(value: int) -> str:
    return f"{_EPOCH_YEAR + value:04d}"


def _month(value: int) -> str:
    return f"{_EPOCH_YEAR + value // 12:04d}-{1 + value % 12:02d}"


def _hour(value: int) -> str:
    return f"{_date(value // 24, expanded=False)}-{value % 24:02d}"


def _date(days: int, *, expanded: bool) -> str:
    month = int(np.datetime64(days, "D").astype("datetime64[M]").astype(np.int64))
    day = 1 + days - int(np.datetime64(month, "M").astype("datetime64[D]").astype(np.int64))
    year = _EPOCH_YEAR + month // 12
    sign = "+" if expanded and year > _LAST_PLAIN_YEAR else ""
    # ISO counts the sign apart from the four digits; Java's plain format does not.
    width = 5 if expanded and year < 0 else 4
    return f"{sign}{year:0{width}d}-{1 + month % 12:02d}-{day:02d}"


def _clock(seconds: int, fraction: int, digits: int) -> str:
    behind = f"{fraction:0{digits}d}".rstrip("0")
    point = f".{behind}" if behind else ""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{point}"


def _time(micros: int) -> str:
    return _clock(micros // 1_000_000, micros % 1_000_000, 6)


def _short_time(micros: int) -> str:
    # Java leaves out what is zero at the end, in steps of three digits.
    clock = _clock(micros // 1_000_000, 0, 6)
    fraction = micros % 1_000_000
    if fraction == 0:
        return clock.removesuffix(":00")
    return f"{clock}.{fraction // 1000:03d}" if fraction % 1000 == 0 else f"{clock}.{fraction:06d}"


def _timestamp(value: int, per_second: int, zone: str) -> str:
    seconds, fraction = divmod(value, per_second)
    days, seconds = divmod(seconds, _SECONDS_A_DAY)
    digits = len(str(per_second)) - 1
    return f"{_date(days, expanded=True)}T{_clock(seconds, fraction, digits)}{zone}"


def _java_number(number: np.float32 | np.float64) -> str:
    if number == 0 or _PLAIN_FROM <= abs(float(number)) < _PLAIN_TO:
        return np.format_float_positional(number, unique=True, trim="0")
    digits, exponent = np.format_float_scientific(number, unique=True, trim="0").split("e")
    return f"{digits}E{int(exponent)}"


_ORDINALS: dict[TransformKind, Callable[[int], str]] = {
    TransformKind.YEAR: _year,
    TransformKind.MONTH: _month,
    TransformKind.HOUR: _hour,
}
_JSON_TEXTS: dict[Primitive, Callable[[int], str]] = {
    Primitive.DATE: partial(_date, expanded=True),
    Primitive.TIME: _time,
    Primitive.TIMESTAMP: partial(_timestamp, per_second=10**6, zone=""),
    Primitive.TIMESTAMPTZ: partial(_timestamp, per_second=10**6, zone="+00:00"),
    Primitive.TIMESTAMP_NS: partial(_timestamp, per_second=10**9, zone=""),
    Primitive.TIMESTAMPTZ_NS: partial(_timestamp, per_second=10**9, zone="+00:00"),
}


def file_location(target: WriteTarget, partition: tuple[PartitionValue, ...], name: str) -> str:
    """The location of a file with this name in this partition, in the table's own spelling."""
    folders = partition_path(target, partition)
    if target.hashed_paths is not None:
        return f"{target.data_location}/{_hashed(target.hashed_paths, folders, name)}"
    return "/".join(filter(None, (target.data_location, folders, name)))


def partition_path(target: WriteTarget, partition: tuple[PartitionValue, ...]) -> str:
    """``a=1/b=2``, or empty for a table without partitions."""
    return "/".join(
        path_part(field.name, human_text(value, field.transform.kind, type_))
        for field, value, type_ in zip(
            target.spec.fields, partition, target.partition_types, strict=True
        )
    )


def _hashed(layout: HashedPaths, folders: str, name: str) -> str:
    within = f"{folders}/{name}" if folders and layout.partition_paths else name
    bits = f"{hash_text(within) & (2**_HASH_BITS - 1):0{_HASH_BITS}b}"
    entropy = "/".join(bits[part] for part in _FOLDERS)
    if layout.context is not None:
        return f"{entropy}/{layout.context}/{within}"
    return f"{entropy}/{within}" if layout.partition_paths else f"{entropy}-{within}"
