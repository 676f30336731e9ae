"""Redaction: removes secrets from texts and structures before they leave the process."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Final

from frazil.telemetry.secret_patterns import (
    forms_of,
    hide_by_pattern,
    names_a_secret,
    secrets_by_pattern,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

# Tried in this order; the first whose character occurs in no secret is used, because then a
# replacement can never complete another secret together with its neighbours.
_PLACEHOLDERS: Final = ("***", "•••", "███", "▒▒▒", "░░░")
_FIRST_PRIVATE_CHARACTER: Final = 0xE000

# Deeper than any event we build; what refers to itself ends here.
_DEEPEST: Final = 24
_TOO_DEEP: Final = "…"


class Redactor:
    """Hides the secrets it was given, and whatever resembles one.

    Values shorter than four characters are not learnt: hiding them would shred every text.
    Safe to use from many threads, also while it learns.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._lock = threading.Lock()
        self._forms: tuple[str, ...] = ()
        self._placeholder = _PLACEHOLDERS[0]
        self.learn(secrets)

    @property
    def placeholder(self) -> str:
        """The placeholder for a secret."""
        return self._placeholder

    def learn(self, values: Iterable[str]) -> None:
        """Hide these values from now on, also URL-quoted, in base64, JSON- or repr-escaped.

        An address or connection string teaches the password within it too.
        """
        with self._lock:
            known = set(self._forms)
            for value in values:
                for secret in (value, *secrets_by_pattern(value)):
                    known |= forms_of(secret)
            self._placeholder = _placeholder_beside(known)
            self._forms = tuple(sorted(known))

    def redact(self, text: str) -> str:
        """The text without secrets. Takes time in proportion to its length."""
        return hide_by_pattern(self.redact_known(text), self._placeholder)

    def redact_known(self, text: str) -> str:
        """The text without the learnt values; for rendered output whose parts were redacted."""
        forms, placeholder = self._forms, self._placeholder
        spans = sorted(span for form in forms for span in _occurrences(form, text))
        if not spans:
            return text
        pieces: list[str] = []
        done = 0
        for start, end in _merged(spans):
            pieces += (text[done:start], placeholder)
            done = end
        return "".join([*pieces, text[done:]])

    def scrub(self, value: object) -> object:
        """A copy of the structure without secrets, in keys, in values, at any depth.

        A field whose name says that it is secret loses its value whatever that is. An exception
        becomes its type and message. What carries no secret keeps its type.
        """
        return self._scrub(value, 0)

    def scrub_field(self, key: str, value: object) -> object:
        """The value of one field without secrets; the placeholder if its name says secret."""
        return self._scrub_field(key, value, 0)

    def _scrub(self, value: object, depth: int) -> object:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self.redact(value)
        if depth > _DEEPEST:
            return _TOO_DEEP
        if isinstance(value, bytes | bytearray | memoryview):
            text = bytes(value).decode("utf-8", "surrogateescape")
            return self.redact(text).encode("utf-8", "surrogateescape")
        if isinstance(value, BaseException):
            return self.redact(f"{type(value).__name__}: {text_of(value)}")
        return self._scrub_container(value, depth)

    def _scrub_container(self, value: object, depth: int) -> object:
        if isinstance(value, Mapping):
            return {
                self._scrub_key(key): self._scrub_field(key, item, depth + 1)
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [self._scrub(item, depth + 1) for item in value]
        if isinstance(value, tuple):
            # A named tuple becomes a plain one: its constructor may want something else.
            return tuple(self._scrub(item, depth + 1) for item in value)
        if isinstance(value, Set):
            return {self._scrub_key(item) for item in value}
        return self._scrub_other(value)

    def _scrub_key(self, key: object) -> object:
        return self.redact(key) if isinstance(key, str) else self._scrub_other(key)

    def _scrub_field(self, key: object, item: object, depth: int) -> object:
        secret = isinstance(key, str) and names_a_secret(key)
        if secret and item is not None and not isinstance(item, bool):
            return self._placeholder
        return self._scrub(item, depth)

    def _scrub_other(self, value: object) -> object:
        # Numbers, dates and objects stay what they are unless one of their texts shows a secret.
        try:
            shown, printed = str(value), repr(value)
        except Exception as error:  # noqa: BLE001 - foreign code; see text_of
            return _without_text(value, error)
        if self.redact(shown) == shown and self.redact(printed) == printed:
            return value
        return self.redact(printed)


def text_of(value: object) -> str:
    """The text of a value, also when it fails to give one (a Java error whose JVM has died)."""
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001 - foreign code; describing a failure must not fail
        return _without_text(value, error)


def _without_text(value: object, error: Exception) -> str:
    return f"<{type(value).__name__} without text: {type(error).__name__}>"


def _placeholder_beside(forms: Iterable[str]) -> str:
    used = set().union(*forms)
    for placeholder in _PLACEHOLDERS:
        if placeholder[0] not in used:
            return placeholder
    code = _FIRST_PRIVATE_CHARACTER
    while chr(code) in used:
        code += 1
    return chr(code) * 3


def _occurrences(form: str, text: str) -> Iterable[tuple[int, int]]:
    start = text.find(form)
    while start >= 0:
        # Another one may begin within the last: `abab` is twice in `ababab`.
        last, reach = start, len(form) - 1
        while (inside := text.find(form, last + 1, last + len(form) + reach)) >= 0:
            last = inside
        yield start, last + len(form)
        start = text.find(form, last + len(form))


def _merged(spans: list[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    # Overlapping secrets are hidden together, so that no tail of the second one is left.
    start, end = spans[0]
    for next_start, next_end in spans[1:]:
        if next_start > end:
            yield start, end
            start, end = next_start, next_end
        else:
            end = max(end, next_end)
    yield start, end
