"""Untrusted text that is shown to an operator: table names may hold control sequences."""

from __future__ import annotations

from typing import Final

# Escape and the other controls, and the marks by which a text is drawn in another order than it is
# read: what is shown would not be what is copied. U+2028 and U+2029 break lines.
_OBEYED: Final = (
    *range(0x20),
    *range(0x7F, 0xA0),
    0x061C,
    0x200B,
    0x200E,
    0x200F,
    *range(0x2028, 0x202F),
    *range(0x2060, 0x2070),
    0xFEFF,
    *range(0xD800, 0xE000),
)
_NAMED: Final = {"\t": r"\t", "\n": r"\n", "\r": r"\r"}


def _spelt(code: int) -> str:
    # As bash reads them between $' and ': above ASCII two digits would be a byte.
    if code < 0x80:  # noqa: PLR2004 - the end of ASCII
        return f"\\x{code:02x}"
    return f"\\u{code:04x}"


_ESCAPES: Final = {code: _NAMED.get(chr(code), _spelt(code)) for code in _OBEYED}
_ESCAPES_IN_LINES: Final = {code: _ESCAPES[code] for code in _OBEYED if chr(code) not in "\n\t"}
_ESCAPES_IN_JSON: Final = {code: f"\\u{code:04x}" for code in _OBEYED if code > 0x7E}  # noqa: PLR2004 - JSON spells the others itself


def printable(text: str) -> str:
    """The text on one line, with everything that a terminal would obey spelt out."""
    return text.translate(_ESCAPES)


def printable_lines(text: str) -> str:
    """The same for a text of several lines."""
    return text.translate(_ESCAPES_IN_LINES)


def printable_json(document: str) -> str:
    """A JSON document that reads back as the same values, spelt so that no terminal obeys it."""
    return document.translate(_ESCAPES_IN_JSON)
