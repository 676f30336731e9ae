"""``${S3_KEY}`` and ``decimal(20,6)`` made safe for the YAML parser.

Inside ``{…}`` a brace ends the mapping and a comma ends the value, so neither ``{key: ${S3_KEY}}``
nor ``{price: decimal(20,6)}`` is YAML. People write it all the same, and so do we in our
documentation. Before parsing, such characters are moved to a plane where YAML sees letters only,
and moved back in every scalar.
"""

from __future__ import annotations

import re

# No brace inside a reference: with one, a text of nothing but openings would be searched in its
# square. No quote either: the end of a quoted scalar must stay visible.
_REFERENCE = r"\$\{[^{}\n\r'\"]*\}"
_ARGUMENTS = r"(?<=[A-Za-z])\([^(){}\[\]\n\r'\"]*\)"
_FRAGILE = re.compile(f"{_REFERENCE}|{_ARGUMENTS}")
# What has a meaning inside {…} and […]; a backslash is not among them, quotes need it.
_HIDDEN = frozenset("{}[],:#")
# The last private-use plane: printable for YAML, and in no document.
_PLANE = 0x100000
_SHIELDED = re.compile(f"[{chr(_PLANE)}-{chr(_PLANE + 0x7F)}]")


def is_shielded(text: str) -> bool:
    """Whether a text holds characters of that plane by itself."""
    return _SHIELDED.search(text) is not None


def shield(text: str) -> str:
    """Hide references and arguments from the parser; lines stay where they are."""
    return _FRAGILE.sub(lambda match: "".join(map(_hide, match[0])), text)


def unshield(text: str) -> str:
    """The text as it was written."""
    return _SHIELDED.sub(lambda match: chr(ord(match[0]) - _PLANE), text)


def _hide(character: str) -> str:
    return chr(_PLANE + ord(character)) if character in _HIDDEN else character
