"""The encodings in which a secret may appear in a text."""

from __future__ import annotations

import base64
import html
import json
from urllib.parse import quote, quote_plus, unquote

# A shorter value is likely to be part of ordinary text: hiding it would damage the text and,
# by what is missing, reveal the value.
SHORTEST_SECRET = 4

# One line of a key file or of a JSON credential. Shorter lines are braces and the like.
SHORTEST_LINE = 8

# The part of a base64 text that depends on the secret alone; a shorter one would hit by chance.
SHORTEST_BASE64_CORE = 8

# Environment variables may hold bytes that are not UTF-8; they arrive as lone surrogates.
_ODD_BYTES = "surrogatepass"


def forms_of(secret: str) -> frozenset[str]:
    """The secret itself and its usual encodings; nothing at all for a value that is too short."""
    if len(secret) < SHORTEST_SECRET:
        return frozenset()
    forms = {secret} | _escaped(secret) | _quoted(secret) | _base64(secret)
    forms |= {line for line in map(str.strip, secret.splitlines()) if len(line) >= SHORTEST_LINE}
    return frozenset(form for form in forms if len(form) >= SHORTEST_SECRET)


def _escaped(secret: str) -> set[str]:
    once = {
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        # Single quotes make repr switch its own quotes; both spellings are learnt.
        repr(secret)[1:-1],
        repr('"' + secret)[2:-1],
        repr(secret.encode("utf-8", _ODD_BYTES))[2:-1],
        html.escape(secret),
    }
    # A JSON text within a JSON text, or a repr of one.
    return once | {json.dumps(form)[1:-1] for form in once} | {repr(form)[1:-1] for form in once}


def _quoted(secret: str) -> set[str]:
    forms = {
        quote(secret, safe="", errors=_ODD_BYTES),
        quote(secret, errors=_ODD_BYTES),
        quote_plus(secret, errors=_ODD_BYTES),
        unquote(secret, errors="replace"),
    }
    return forms | {_with_small_hex(form) for form in forms}


def _with_small_hex(quoted: str) -> str:
    first, *rest = quoted.split("%")
    return "%".join([first, *(part[:2].lower() + part[2:] for part in rest)])


def _base64(secret: str) -> set[str]:
    raw = secret.encode("utf-8", _ODD_BYTES)
    plain = base64.b64encode(raw).decode("ascii")
    found = {plain, plain.rstrip("=")}
    # `Basic` credentials encode `user:secret`: the secret then starts at any of three offsets
    # within a group, and only the groups it fills alone are the same for every user.
    for offset in range(3):
        shifted = base64.b64encode(b"\0" * offset + raw).decode("ascii")
        start = -(-offset * 8 // 6)
        core = shifted[start : (offset + len(raw)) * 8 // 6]
        if len(core) >= SHORTEST_BASE64_CORE:
            found.add(core)
    return found | {form.replace("+", "-").replace("/", "_") for form in found}
