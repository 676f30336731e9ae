"""Values as Postgres prints them, and its arrays read one character at a time.

The slow and obvious counterpart of ``frazil.codec.pgtext.convert``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime


class MisfitError(Exception):
    """Postgres prints this, and a list cannot hold it."""


class StrangeError(Exception):
    """Postgres does not print this."""


def float_text(number: float, *, width: int = 64) -> str:
    """The shortest digits that give the number back."""
    if number != number:  # noqa: PLR0124 - only NaN is not itself
        return "NaN"
    if number in {float("inf"), float("-inf")}:
        return "Infinity" if number > 0 else "-Infinity"
    return str(np.float32(number) if width == 32 else float(number)).removesuffix(".0")


def timestamp_text(moment: datetime) -> str:
    """With a space, and without the zeros at the end of the fraction."""
    text = moment.replace(tzinfo=None).isoformat(" ")
    return text.rstrip("0").removesuffix(".") if "." in text else text


def array_text(elements: Sequence[str | None], delimiter: str = ",") -> str:
    """As ``array_out`` of Postgres writes elements, quoting only those that need it."""
    return "{" + delimiter.join(_element_text(each, delimiter) for each in elements) + "}"


def _element_text(element: str | None, delimiter: str) -> str:
    if element is None:
        return "NULL"
    special = set('"\\{} \t\n\r\v\f') | {delimiter}
    if element and element.upper() != "NULL" and not special & set(element):
        return element
    escaped = element.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def array_elements(text: str, delimiter: str = ",") -> list[str | None]:
    """The elements of an array, or MisfitError, or StrangeError."""
    if re.fullmatch(r"(?s)(?:\[-?[0-9]+:-?[0-9]+\])+=\{.*\}|\{\{.*\}\}", text):
        raise MisfitError
    if len(text) < 2 or text[0] != "{" or text[-1] != "}":
        raise StrangeError
    if text == "{}":
        return []
    rest = iter(text[1:])
    elements: list[str | None] = []
    sign = delimiter
    while sign == delimiter:
        element, sign = _next_element(rest, delimiter)
        elements.append(element)
    if next(rest, None) is not None:
        raise StrangeError
    return elements


def _next_element(rest: Iterator[str], delimiter: str) -> tuple[str | None, str]:
    """An element and the delimiter or brace behind it."""
    sign = next(rest, "")
    if sign == '"':
        return _quoted(rest), _ending(next(rest, ""), delimiter)
    plain = ""
    while sign not in {delimiter, "}"}:
        if sign in {"", '"', "\\", "{"}:
            raise StrangeError
        plain += sign
        sign = next(rest, "")
    if not plain:
        raise StrangeError
    return (None if plain == "NULL" else plain), sign


def _quoted(rest: Iterator[str]) -> str:
    inside = ""
    for sign in rest:
        if sign == '"':
            return inside
        inside += next(rest, "") if sign == "\\" else sign
    raise StrangeError


def _ending(sign: str, delimiter: str) -> str:
    if sign not in {delimiter, "}"} or not sign:
        raise StrangeError
    return sign
