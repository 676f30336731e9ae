"""JSON documents inside files, read without trusting their shape."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

from frazil.codec.malformed import MalformedFileError, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence


def parse_json(data: bytes, *, offset: int = 0) -> object:
    """The document; MalformedFileError for a member that is there twice, NaN, and no JSON."""
    try:
        return json.loads(
            data.decode(), object_pairs_hook=_unique_members, parse_constant=_no_constant
        )
    # The parser descends once per bracket, and a document may be nothing but brackets.
    except (ValueError, RecursionError) as error:
        raise MalformedFileError("expected a JSON document", offset=offset) from error


def _unique_members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a member is there twice")
    return members


def _no_constant(name: str) -> object:
    raise ValueError(name)


class JsonRecord:
    """A JSON object whose members are taken out by the type they must have.

    With ``expected`` it has exactly these members. The parts of a document have no useful offset
    once it is parsed: ``offset`` is that of the document.
    """

    def __init__(
        self,
        name: str,
        members: object,
        expected: tuple[str, ...] | None = None,
        *,
        offset: int = 0,
    ) -> None:
        self._name = name
        self._offset = offset
        if not isinstance(members, dict):
            what = f"expected {name} to be an object"
            raise MalformedFileError(what, offset=offset)
        if expected is not None and members.keys() != set(expected):
            other = min(map(str, members.keys() ^ set(expected)))
            verb = "without" if other in expected else "with"
            what = f"expected {name} to have other members, found it {verb} {quoted(other)}"
            raise MalformedFileError(what, offset=offset)
        self._members = members

    def __contains__(self, member: str) -> bool:
        return member in self._members

    def refusal(self, member: str, expected: str) -> MalformedFileError:
        """The error for a member that is anything else."""
        what = f"expected `{member}` of {self._name} to be {expected}"
        return MalformedFileError(what, offset=self._offset)

    def member(self, member: str) -> object:
        """A member of any type; None if it is not there."""
        return self._members.get(member)

    def items(self, member: str) -> list[object]:
        """A list of anything."""
        value = self._members.get(member)
        if not isinstance(value, list):
            raise self.refusal(member, "a list")
        return value

    def number(self, member: str, within: range) -> int:
        """An integer of this range."""
        (value,) = self._as_numbers(member, [self._members.get(member)], within)
        return value

    def numbers(self, member: str, within: range) -> list[int]:
        """A list of such integers."""
        return self._as_numbers(member, self.items(member), within)

    def numbers_or_nulls(self, member: str, within: range) -> list[int | None]:
        """A list of such integers, any of which may be null."""
        column = self.items(member)
        self._as_numbers(member, [each for each in column if each is not None], within)
        return cast("list[int | None]", column)

    def indexed(self, member: str, choices: Sequence[object]) -> list[int]:
        """Indexes into a list that was read before."""
        return self.numbers(member, range(len(choices)))

    def text(self, member: str) -> str:
        """A text."""
        (value,) = self._as_texts(member, [self._members.get(member)])
        return value

    def texts(self, member: str) -> list[str]:
        """A list of texts."""
        return self._as_texts(member, self.items(member))

    def properties(self, member: str) -> dict[str, str]:
        """Texts by name; none if the member is not there."""
        value = self._members.get(member, {})
        if not isinstance(value, dict):
            raise self.refusal(member, "an object")
        self._as_texts(member, [*value, *value.values()])
        return value

    def booleans(self, member: str) -> list[bool]:
        """A list of true and false."""
        column = self.items(member)
        if not set(map(type, column)) <= {bool}:
            raise self.refusal(member, "true or false")
        return cast("list[bool]", column)

    def check_lengths(self) -> None:
        """Refuse a table whose columns differ in length."""
        if len({len(self.items(each)) for each in self._members}) > 1:
            what = f"expected the columns of {self._name} to have one length"
            raise MalformedFileError(what, offset=self._offset)

    def _as_numbers(self, member: str, column: list[object], within: range) -> list[int]:
        # Exactly these types: JSON's true is an int to Python.
        if set(map(type, column)) <= {int}:
            numbers = cast("list[int]", column)
            if not numbers or (min(numbers) in within and max(numbers) in within):
                return numbers
        bounds = f"from {within[0]} to {within[-1]}" if within else "of nothing"
        raise self.refusal(member, f"a number {bounds}")

    def _as_texts(self, member: str, column: list[object]) -> list[str]:
        if set(map(type, column)) <= {str}:
            texts = cast("list[str]", column)
            try:
                # JSON can escape half a character, which no terminal, file or store accepts.
                "".join(texts).encode()
            except UnicodeEncodeError:
                pass
            else:
                return texts
        raise self.refusal(member, "text")
