"""References such as ``${S3_KEY}`` made safe for the YAML parser.

Inside ``{…}`` a brace ends the mapping, so ``{key: ${S3_KEY}}`` is not YAML. People write it all
the same, and so do we in our documentation. Before parsing, the characters of a reference are
moved to a plane where YAML sees letters only, and moved back in every scalar.
"""

from __future__ import annotations

import re

# No brace inside: with one, a text of nothing but openings would be searched in its square. No
# quote either: the end of a quoted scalar must stay visible.
_REFERENCE = re.compile(r"\$\{[^{}\n\r'\"]*\}")
# The last private-use plane: printable for YAML, and in nobody's document.
_PLANE = 0x100000
_LAST_ASCII = 0x7F
_SHIELDED = re.compile(f"[{chr(_PLANE)}-{chr(_PLANE + _LAST_ASCII)}]")


def is_shielded(text: str) -> bool:
    """Whether a text holds characters of that plane by itself."""
    return _SHIELDED.search(text) is not None


def shield(text: str) -> str:
    """Hide the references of a document from the parser; lines stay where they are."""
    return _REFERENCE.sub(lambda match: "".join(map(_hide, match[0])), text)


def unshield(text: str) -> str:
    """The text as it was written."""
    return _SHIELDED.sub(lambda match: chr(ord(match[0]) - _PLANE), text)


def _hide(character: str) -> str:
    code = ord(character)
    return chr(_PLANE + code) if code <= _LAST_ASCII else character
