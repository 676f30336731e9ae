"""The types of values a setting may have, each refusing with a complete sentence.

A validator never puts the value into its sentence: whether it may be repeated depends on where it
came from, and only the reporter of mistakes knows that.
"""

from __future__ import annotations

import difflib
import re
from datetime import timedelta
from enum import Enum, StrEnum
from pathlib import Path
from typing import Annotated, Final

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

from frazil.config.models.quantities import (
    DURATION_PATTERN,
    DURATION_WORDS,
    LARGEST_SIZE,
    SIZE_PATTERN,
    SIZE_TEXT,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
)

# The key of the validation context that holds the directory of the document.
DIRECTORY: Final = "directory"

_WHOLE_NUMBER = re.compile(r"[-+]?[0-9]{1,18}")
# Below this likeness a suggestion confuses more than it helps.
_LIKENESS = 0.6
# Comparing names takes time in the square of their length; real keys are short.
_LONGEST_NAME_COMPARED = 64


class Substituted(str):
    """Text that came from a variable or a file, and so may mean a number or a boolean."""

    __slots__ = ()


class SettingTrait(Enum):
    """What the rest of the package needs to know about a setting besides its type."""

    GUARDED = "a URI or free text that may hold a password: never repeated, masked when shown"
    SIZE = "an integer shown with a unit of bytes"


def refuse(sentence: str) -> PydanticCustomError:
    """The error a validator raises; the sentence says what is allowed."""
    return PydanticCustomError("refused", "{sentence}", {"sentence": sentence})


def nearest(name: str, known: list[str]) -> str | None:
    """The known name most like the given one, when one is like it at all."""
    if len(name) > _LONGEST_NAME_COMPARED:
        return None
    close = difflib.get_close_matches(name, known, n=1, cutoff=_LIKENESS)
    return close[0] if close else None


def _integer(value: object, *, minimum: int) -> object:
    if isinstance(value, Substituted) and _WHOLE_NUMBER.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        sentence = f"must be a whole number of at least {minimum}"
        raise refuse(sentence)
    return value


def _positive(value: object) -> object:
    return _integer(value, minimum=1)


def _natural(value: object) -> object:
    return _integer(value, minimum=0)


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
        like = None
        if isinstance(value, str) and not isinstance(value, Substituted):
            like = nearest(value, known)
        hint = f" (did you mean {like}?)" if like is not None else ""
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


Count = Annotated[int, BeforeValidator(_positive), Field(ge=1)]
CountOrZero = Annotated[int, BeforeValidator(_natural), Field(ge=0)]
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
SIZE_SCHEMA: Final = {
    "anyOf": [{"type": "string", "pattern": SIZE_PATTERN}, {"type": "integer", "minimum": 0}]
}
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
