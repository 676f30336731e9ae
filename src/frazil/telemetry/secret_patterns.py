"""How a secret shows in a text: its encodings if it is known, else its surroundings.

Every expression here starts at a literal and ends without a long way back, so that a text of a
megabyte costs milliseconds whatever is in it.
"""

from __future__ import annotations

import base64
import html
import json
import re
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus, unquote

if TYPE_CHECKING:
    from collections.abc import Callable

# A shorter value is likely to be part of ordinary text: hiding it would damage the text and,
# by what is missing, reveal the value.
SHORTEST_SECRET = 4

# One line of a key file or of a JSON credential. Shorter lines are braces and the like.
SHORTEST_LINE = 8

# The part of a base64 text that depends on the secret alone; a shorter one would hit by chance.
SHORTEST_BASE64_CORE = 8

# Environment variables may hold bytes that are not UTF-8; they arrive as lone surrogates.
_ODD_BYTES = "surrogatepass"

_NAMES = (
    r"secret|passw(?:or)?d|passphrase|token|credential|signature|api.?key|access.?key|private.?key"
    r"|account.?key|shared.?key|sse\.?[a-z.]{0,16}key|passcode|cookie|(?<![a-z])header\.(?=\w)"
    r"|(?<![a-z])(?:pwd|sas|sig|dsn)(?![a-z])"
)
_NAME = re.compile(_NAMES, re.IGNORECASE)

# `password=x`, `"password": "x"`, `\"password\": \"x\"`, `password -> x`, `<password>x<`.
# A key may go on after its telltale part (`secret-access-key`); 64 is longer than any we know.
_ASSIGNMENT = re.compile(
    rf"(?P<key>(?:{_NAMES})(?:[\w.]|-(?!>)){{0,64}}+)"
    r"(?P<sign>\\{0,3}[\"']?\s{0,4}(?:=>|->|[=:>])\s{0,4}(?:SecretStr\()?)"
    r"(?:(?P<open>\\{0,3})(?P<quote>[\"'])|(?P<bare>[^\s\"'<>&]++))",
    re.IGNORECASE,
)
_QUOTED = {
    '"': re.compile(r'(?:[^"\\]|\\.)*+', re.DOTALL),
    "'": re.compile(r"(?:[^'\\]|\\.)*+", re.DOTALL),
}
_CLOSERS = ",;)}]\\"
_NOTHING = frozenset({"", "none", "null", "true", "false"})
# From here on an unquoted word after `token: ` is rather a token than a word of a sentence.
_LONG_WORD = 20

_ADDRESS = re.compile(r"://[^\s\"'<>`]++")
_PORT = re.compile(r"[^:]*:\d{0,5}")
_AUTHORIZATION = re.compile(
    r"(authorization\\{0,3}[\"']?\s{0,4}(?:[=:]|->)\s{0,4}\\{0,3}[\"']?(?:[a-z]{1,16}\s{1,4})?)"
    r"[^\s\"'\\,]++",
    re.IGNORECASE,
)
_SCHEME_AND_TOKEN = re.compile(r"\b(Bearer|Basic)(\s{1,4})([\w\-.~+/]{8,}+={0,2})", re.IGNORECASE)
_WHOLE = (
    re.compile(r"(?<![A-Z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Z0-9])"),
    # The header of a JSON web token is `{"` in base64.
    re.compile(r"(?<![\w-])eyJ[\w-]{8,}+\.[\w-]{8,}+(?:\.[\w-]*+)?"),
    re.compile(r"-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----[^-]*+"),
)


def names_a_secret(key: str) -> bool:
    """Whether a field of this name must not be shown."""
    return _NAME.search(key) is not None


def hide_by_pattern(text: str, placeholder: str) -> str:
    """Replace whatever resembles a secret; the text around it stays as it is."""
    text = _ADDRESS.sub(lambda found: _without_userinfo(found, placeholder), text)
    text = _AUTHORIZATION.sub(lambda found: found[1] + placeholder, text)
    text = _SCHEME_AND_TOKEN.sub(lambda found: _without_token(found, placeholder), text)
    for pattern in _WHOLE:
        text = pattern.sub(placeholder, text)
    return _each_assignment(text, lambda _: placeholder)


def secrets_by_pattern(text: str) -> tuple[str, ...]:
    """What the patterns would hide in an address or a keyword connection string."""
    found: list[str] = []
    for match in _ADDRESS.finditer(text):
        userinfo, _ = _split_userinfo(match)
        found.append(userinfo.partition(":")[2])

    def note(value: str) -> str:
        found.append(value)
        return value

    _each_assignment(text, note)
    return tuple(filter(None, found))


def _split_userinfo(found: re.Match[str]) -> tuple[str, str]:
    rest = found[0][3:]
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in authority:
        cut = authority.rindex("@")
    elif ":" in authority and not _PORT.fullmatch(authority) and "@" in rest:
        # A password with a slash in it that was not quoted.
        cut = rest.rindex("@")
    else:
        return "", rest
    return rest[:cut], rest[cut:]


def _without_userinfo(found: re.Match[str], placeholder: str) -> str:
    userinfo, rest = _split_userinfo(found)
    if not userinfo:
        return found[0]
    user, colon, _ = userinfo.partition(":")
    if colon:
        return f"://{user}:{placeholder}{rest}"
    # Before the @ comes a token in `https://`, a container in `abfss://`, a user elsewhere.
    is_token = found.string[: found.start()][-5:].lower().endswith(("http", "https"))
    return f"://{placeholder if is_token else user}{rest}"


def _without_token(found: re.Match[str], placeholder: str) -> str:
    word = found[3]
    # `Basic authentication failed` is prose.
    if word[1:].islower() and word.isalpha() and len(word) < _LONG_WORD:
        return found[0]
    return f"{found[1]}{found[2]}{placeholder}"


def _each_assignment(text: str, replace: Callable[[str], str]) -> str:
    pieces: list[str] = []
    done = 0
    while (found := _ASSIGNMENT.search(text, done)) is not None:
        start, end = _value_span(text, found)
        value = text[start:end]
        pieces.append(text[done:start])
        pieces.append(value if _is_harmless(text, found, value, end) else replace(value))
        done = end
    pieces.append(text[done:])
    return "".join(pieces)


def _value_span(text: str, found: re.Match[str]) -> tuple[int, int]:
    if found["quote"] is None:
        return found.start("bare"), found.start("bare") + len(found["bare"].rstrip(_CLOSERS))
    start = found.end("quote")
    if not found["open"]:
        inside = _QUOTED[found["quote"]].match(text, start)
        return start, inside.end() if inside else start
    # A text within a text ends at a quote with as many backslashes as it began with; one with
    # more belongs to the value.
    depth = len(found["open"])
    ending = re.compile(rf"(?<!\\)\\{{0,{depth}}}{found['quote']}").search(text, start)
    return start, ending.start() if ending else len(text)


def _is_harmless(text: str, found: re.Match[str], value: str, end: int) -> bool:
    if value.lower() in _NOTHING:
        return True
    if found["quote"] is not None or found["sign"].strip(" \t\\\"'") != ":":
        return False
    # `source.dsn: is required` is a sentence, `password: hunter2` is not.
    goes_on = text[end : end + 2]
    in_a_sentence = goes_on[:1] == " " and goes_on[1:].isalpha()
    return in_a_sentence and len(value) < _LONG_WORD and not any(c.isdigit() for c in value)


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
