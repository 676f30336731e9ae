"""The types of values a setting may have, each refusing with a complete sentence.

A validator never puts the value into its sentence: whether it may be repeated depends on where it
came from, and only the reporter of mistakes knows that. Durations and sizes are written as people
write them.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from datetime import timedelta
from enum import Enum, StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    SecretStr,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

if TYPE_CHECKING:
    from collections.abc import Iterable

_DURATION = re.compile(r"([0-9]{1,15})(ms|s|m|h|d)")
_PERCENT = re.compile(r"([0-9]{1,3}) ?%")
_SIZE = re.compile(r"([0-9]{1,19}) ?(B|[kKMGTP]i?B)")

DURATION_PATTERN = "^[0-9]+(ms|s|m|h|d)$"
SIZE_PATTERN = "^[0-9]+ ?(B|[kKMGTP]i?B)$"
PERCENT_PATTERN = "^[0-9]+ ?%$"
PERCENT_TEXT = "a whole percentage from 1% to 100%, such as 20%"
DURATION_WORDS = "a duration such as 500ms, 10s, 1m, 168h or 7d"
SIZE_TEXT = "a size such as 256MB, 128MiB or 10GiB, or a whole number of bytes"

_UNITS_OF_TIME = {
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
}
_BINARY_UNITS = {"PiB": 2**50, "TiB": 2**40, "GiB": 2**30, "MiB": 2**20, "KiB": 2**10}
_UNITS_OF_SIZE = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "PB": 10**15,
    "kiB": 2**10,
    **_BINARY_UNITS,
}

# A century: nothing here waits longer, and sums of two such values stay far from overflow.
LONGEST_DURATION = timedelta(days=36_500)
# What a signed 64-bit integer holds, because sizes travel to the JVM and to Parquet.
LARGEST_SIZE = 2**63 - 1

# The key of the validation context that holds the directory of the document.
DIRECTORY: Final = "directory"

_WHOLE_NUMBER = re.compile(r"[-+]?[0-9]{1,18}")
# Below this likeness a suggestion confuses more than it helps.
_LIKENESS = 0.6
# Comparing names takes time in the square of their length; real keys are short.
_LONGEST_NAME_COMPARED = 64

SIZE_SCHEMA: Final = {
    "anyOf": [{"type": "string", "pattern": SIZE_PATTERN}, {"type": "integer", "minimum": 0}]
}
PERCENT_SCHEMA: Final = {"type": "string", "pattern": PERCENT_PATTERN}
_WHOLE = 100


def parse_duration(text: str) -> timedelta:
    """Read ``500ms``, ``10s``, ``1m``, ``168h`` or ``7d``; raises ValueError on anything else."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(DURATION_WORDS)
    count, unit = int(match[1]), _UNITS_OF_TIME[match[2]]
    if count > LONGEST_DURATION // unit:
        raise ValueError(DURATION_WORDS)
    return count * unit


def format_duration(duration: timedelta) -> str:
    """Write a duration in its largest exact unit, so that it reads back as the same value."""
    for name, unit in _UNITS_OF_TIME.items():
        if duration and duration % unit == timedelta(0):
            return f"{duration // unit}{name}"
    return f"{duration // _UNITS_OF_TIME['ms']}ms"


def parse_size(text: str) -> int:
    """Read ``256MB``, ``128MiB`` or ``10GiB`` as bytes; raises ValueError on anything else."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(SIZE_TEXT)
    size = int(match[1]) * _UNITS_OF_SIZE[match[2]]
    if size > LARGEST_SIZE:
        raise ValueError(SIZE_TEXT)
    return size


def format_size(size: int) -> str:
    """Write bytes in their largest exact binary unit, so that they read back as the same value."""
    for name, unit in _BINARY_UNITS.items():
        if size and size % unit == 0:
            return f"{size // unit}{name}"
    return f"{size}B"


def format_percent(percent: int) -> str:
    """Write a percentage so that it reads back as the same value."""
    return f"{percent}%"


class Substituted(str):
    """Text that came from a variable or a file, and so may mean a number or a boolean."""

    __slots__ = ()


class SettingTrait(Enum):
    """What the rest of the package needs to know about a setting besides its type."""

    GUARDED = "a URI or free text that may hold a password: never repeated, masked when shown"
    SIZE = "an integer shown with a unit of bytes"
    PERCENT = "an integer shown with a percent sign"


def refuse(sentence: str) -> PydanticCustomError:
    """The error a validator raises; the sentence says what is allowed."""
    return PydanticCustomError("refused", "{sentence}", {"sentence": sentence})


def suggestion(name: str, known: Iterable[str]) -> str:
    """The known name most like the given one, as a remark; empty when none is like it at all."""
    if len(name) > _LONGEST_NAME_COMPARED:
        return ""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=_LIKENESS)
    return f" (did you mean {close[0]}?)" if close else ""


def _integer(value: object, *, minimum: int) -> object:
    if isinstance(value, Substituted) and _WHOLE_NUMBER.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        sentence = f"must be a whole number of at least {minimum}"
        raise refuse(sentence)
    return value


def _truth(value: object) -> object:
    if isinstance(value, Substituted) and value.lower() in {"true", "false"}:
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise refuse("must be true or false")
    return value


def _text(value: object) -> object:
    if not isinstance(value, str):
        raise refuse("must be text (put it in quotes if it looks like a number or a truth value)")
    # A plain str: nothing outside this module should see the subclass.
    return str.__str__(value)


def _filled(value: object) -> object:
    text = _text(value)
    if not text:
        raise refuse("must not be empty")
    return text


def _secret(value: object) -> object:
    if isinstance(value, SecretStr):
        return value
    if not isinstance(value, str) or not value:
        raise refuse("must be text that is not empty")
    return str.__str__(value)


def _duration(value: object) -> object:
    if isinstance(value, str):
        try:
            value = parse_duration(value)
        except ValueError:
            value = None
    if not isinstance(value, timedelta) or value <= timedelta(0):
        sentence = f"must be {DURATION_WORDS}, and more than nothing"
        raise refuse(sentence)
    return value


def _size(value: object) -> object:
    if isinstance(value, Substituted) and _WHOLE_NUMBER.fullmatch(value):
        value = int(value)
    if isinstance(value, str):
        try:
            value = parse_size(value)
        except ValueError:
            value = None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= LARGEST_SIZE:
        sentence = f"must be {SIZE_TEXT}, and more than nothing"
        raise refuse(sentence)
    return value


def _size_or_zero(value: object) -> object:
    is_zero = value == "0" if isinstance(value, Substituted) else value == 0
    return 0 if is_zero and not isinstance(value, bool) else _size(value)


def _percent(value: object) -> object:
    match = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    number = int(match[1]) if match is not None else value
    # A number without a sign could mean a fraction, but for the models' own defaults.
    if isinstance(number, bool) or not isinstance(number, int) or not 0 < number <= _WHOLE:
        sentence = f"must be {PERCENT_TEXT}"
        raise refuse(sentence)
    return number


def document_directory(info: ValidationInfo) -> Path | None:
    """The directory relative paths start from; None when the model is built without a document."""
    directory = info.context.get(DIRECTORY) if isinstance(info.context, dict) else None
    return directory if isinstance(directory, Path) else None


def _local_path(value: object, info: ValidationInfo) -> object:
    if isinstance(value, Path):
        value = str(value)
    if not isinstance(value, str) or not value or "\0" in value:
        raise refuse("must be a path")
    directory = document_directory(info)
    return Path(str.__str__(value)) if directory is None else directory / value


def _location(value: object, info: ValidationInfo) -> object:
    if isinstance(value, str) and "://" in value:
        return str.__str__(value)
    return str(_local_path(value, info))


def _web_address(value: object) -> object:
    if not isinstance(value, str) or not re.fullmatch(r"https?://[^\s/]\S*", value):
        raise refuse("must be an address that starts with http:// or https://")
    return str.__str__(value)


def one_of(choices: type[StrEnum]) -> BeforeValidator:
    """Accept exactly the values of this enum, and name the nearest one otherwise."""
    known = [choice.value for choice in choices]

    def choose(value: object) -> object:
        if isinstance(value, str) and value in known:
            return choices(str.__str__(value))
        hint = ""
        if isinstance(value, str) and not isinstance(value, Substituted):
            hint = suggestion(value, known)
        sentence = f"must be one of {', '.join(known)}{hint}"
        raise refuse(sentence)

    return BeforeValidator(choose)


def _free_mapping(value: object) -> object:
    if not isinstance(value, dict):
        raise refuse("must be a mapping of names to texts")
    return {str(name): _free_text(text) for name, text in value.items()}


def _free_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise refuse("every value must be a text, a number or a truth value")


Count = Annotated[int, BeforeValidator(partial(_integer, minimum=1)), Field(ge=1)]
CountOrZero = Annotated[int, BeforeValidator(partial(_integer, minimum=0)), Field(ge=0)]
Truth = Annotated[bool, BeforeValidator(_truth)]
Text = Annotated[str, BeforeValidator(_text)]
Name = Annotated[str, BeforeValidator(_filled), Field(min_length=1)]
Secret = Annotated[
    SecretStr, BeforeValidator(_secret), WithJsonSchema({"type": "string", "minLength": 1})
]
Duration = Annotated[
    timedelta,
    BeforeValidator(_duration),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN}),
]
Size = Annotated[
    int,
    BeforeValidator(_size),
    PlainSerializer(format_size, return_type=str),
    WithJsonSchema(SIZE_SCHEMA),
    SettingTrait.SIZE,
]
SizeOrZero = Annotated[
    int,
    BeforeValidator(_size_or_zero),
    PlainSerializer(format_size, return_type=str),
    WithJsonSchema(SIZE_SCHEMA),
    SettingTrait.SIZE,
]
Percent = Annotated[
    int,
    BeforeValidator(_percent),
    PlainSerializer(format_percent, return_type=str),
    WithJsonSchema(PERCENT_SCHEMA),
    SettingTrait.PERCENT,
]
LocalPath = Annotated[
    Path, BeforeValidator(_local_path), WithJsonSchema({"type": "string", "minLength": 1})
]
Location = Annotated[str, BeforeValidator(_location), Field(min_length=1)]
Uri = Annotated[str, BeforeValidator(_filled), SettingTrait.GUARDED]
WebAddress = Annotated[
    str, BeforeValidator(_web_address), Field(pattern="^https?://"), SettingTrait.GUARDED
]
FreeMapping = Annotated[
    dict[str, str],
    BeforeValidator(_free_mapping),
    WithJsonSchema(
        {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
    ),
    SettingTrait.GUARDED,
]


def matching(pattern: str, sentence: str) -> AfterValidator:
    """Accept text of this shape, and say the sentence otherwise."""
    compiled = re.compile(pattern)

    def check(text: str) -> str:
        if compiled.fullmatch(text) is None:
            raise refuse(sentence)
        return text

    return AfterValidator(check)


def is_clear_text(address: str | None) -> bool:
    """Whether an address is plain ``http://`` to another machine."""
    try:
        parts = urlsplit(address or "")
        return parts.scheme.lower() == "http" and not is_loopback(parts.hostname or "")
    except ValueError:
        # Not an address, as the validator of its setting says.
        return False


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by name or by address."""
    name = host.lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def has_password(address: str | None) -> bool:
    """Whether an address carries a user's password or a token before its host."""
    try:
        return urlsplit(address or "").username is not None
    except ValueError:
        return False
