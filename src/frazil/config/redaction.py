"""What is secret in a configuration: found for telemetry, masked for people."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pydantic import SecretStr

from frazil.config.values import Marker
from frazil.config.walking import Setting, settings_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.config.loading import LoadedConfig

MASK = "*****"

_SECRET_NAME = re.compile(
    r"secret|passw|pwd|token|credential|private|signature|(?:^|[._-])(?:sas|key|auth|dsn)(?:$|[._-])"
    r"|accesskey|access-key|access\.key|apikey|account\.key|\.key\.",
    re.IGNORECASE,
)
# scheme://user:password@ ; the password may hold any character but the @ that ends it.
_USER_INFO = re.compile(r"(?P<head>[A-Za-z][A-Za-z0-9+.-]*://)(?P<user>[^/?#]*)@")
_QUERY_SECRET = re.compile(
    r"(?P<head>[?&;](?:[^=&;]*(?:passw|secret|token|key|sig|credential|sas)[^=&;]*)=)(?P<value>[^&;#]+)",
    re.IGNORECASE,
)
_KEYWORD_PASSWORD = re.compile(r"\b(?:ssl)?password\s*=\s*(?:'((?:[^'\\]|\\.)*)'|(\S+))")


def is_secret_name(name: str) -> bool:
    """Whether a free key such as ``s3.secret-access-key`` announces a secret."""
    return _SECRET_NAME.search(name) is not None


def mask_uri(text: str) -> str:
    """The same text without passwords in its user part or its query."""

    def mask_user(match: re.Match[str]) -> str:
        user, colon, _ = match["user"].partition(":")
        return f"{match['head']}{user}:{MASK}@" if colon else match[0]

    return _QUERY_SECRET.sub(rf"\g<head>{MASK}", _USER_INFO.sub(mask_user, text))


def is_masked_whole(setting: Setting) -> bool:
    """Whether nothing of a value may be shown."""
    if isinstance(setting.value, SecretStr):
        return True
    is_free = Marker.GUARDED in setting.spot.markers
    return is_free and len(setting.path) > 1 and is_secret_name(_free_key(setting))


def _free_key(setting: Setting) -> str:
    # Only below a free mapping is the last key not one of ours.
    is_free = setting.path[-2:-1] in {("properties",), ("conf",)}
    return str(setting.path[-1]) if is_free else ""


def secret_values(loaded: LoadedConfig) -> frozenset[str]:
    """Every secret text in the configuration, and the passwords inside connection strings."""
    found: set[str] = set()
    for setting in settings_of(loaded.config):
        values = setting.value if isinstance(setting.value, tuple) else (setting.value,)
        for value in values:
            if isinstance(value, SecretStr):
                found.update(_secret_parts(value.get_secret_value()))
            elif isinstance(value, str) and Marker.GUARDED in setting.spot.markers:
                whole = (value,) if is_masked_whole(setting) else ()
                found.update((*whole, *_passwords(value)))
    return frozenset(filter(None, found))


def _secret_parts(text: str) -> Iterator[str]:
    yield text
    yield from _passwords(text)
    if "://" not in text and text.count(":") == 1:
        # OAuth2 client credentials: the part after the colon is the secret one.
        yield text.partition(":")[2]


def _passwords(text: str) -> Iterator[str]:
    for match in _USER_INFO.finditer(text):
        user, _, password = match["user"].partition(":")
        # A token may stand alone before the @, as in Sentry's addresses.
        alone = user if "://" in text and not password and text.startswith("http") else ""
        for part in (password, alone):
            yield from (part, unquote(part))
    for match in _QUERY_SECRET.finditer(text):
        yield from (match["value"], unquote(match["value"]))
    for match in _KEYWORD_PASSWORD.finditer(text):
        yield re.sub(r"\\(.)", r"\1", match[1] or match[2] or "")
