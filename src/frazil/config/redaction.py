"""What is secret in a configuration: found for telemetry, masked in output."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pydantic import SecretStr

from frazil.config.harmless import announces_secret, is_harmless
from frazil.config.loading.field_paths import Shape, spot_at
from frazil.config.loading.settings import Setting, settings_of
from frazil.config.models.values import SettingTrait

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.config.loader import LoadedConfig

MASK = "*****"

# scheme://user:password@ ; the password may hold any character but the @ that ends it, and a port
# is none.
_USER_INFO = re.compile(
    r"(?P<head>[A-Za-z][A-Za-z0-9+.-]*://)(?P<user>[^/?#\s]*(?::(?!\d{1,5}(?:[/?#]|$))[^\s]*)?)@"
)
# A shorter value of an unknown property is likely ordinary text of every log: hiding it
# would shred the text.
_SHORTEST_UNKNOWN = 8
_SECRET_PART = re.compile(r"(?:^(?:Bearer|Basic|Token|Digest)\s+|=)([^\s;,&]{8,})", re.IGNORECASE)
_QUERY_SECRET = re.compile(
    r"(?P<head>[?&;](?:[^=&;]*(?:passw|secret|token|key|sig|credential|sas)[^=&;]*)=)(?P<value>[^&;#]+)",
    re.IGNORECASE,
)
_KEYWORD_PASSWORD = re.compile(r"\b(?:ssl)?password\s*=\s*(?:'((?:[^'\\]|\\.)*)'|(\S+))")


def mask_uri(text: str) -> str:
    """The same text without passwords in its user part or its query."""

    def mask_user(match: re.Match[str]) -> str:
        user, colon, _ = match["user"].partition(":")
        return f"{match['head']}{user}:{MASK}@" if colon else match[0]

    return _QUERY_SECRET.sub(rf"\g<head>{MASK}", _USER_INFO.sub(mask_user, text))


def is_masked_whole(setting: Setting) -> bool:
    """Whether nothing of a value may be shown: a secret, or a property not known as harmless."""
    if isinstance(setting.value, SecretStr):
        return True
    name = _property_name(setting)
    return name is not None and not is_harmless(name)


def _property_name(setting: Setting) -> str | None:
    """The name of a property that goes to Iceberg or Spark as it is; None for a key of ours."""
    above = spot_at(setting.path[:-1])
    is_property = above is not None and above.shape is Shape.MAPPING
    is_guarded = SettingTrait.GUARDED in setting.spot.markers
    return str(setting.path[-1]) if is_property and is_guarded else None


def secret_values(loaded: LoadedConfig) -> frozenset[str]:
    """Every secret text in the configuration, and the passwords inside connection strings."""
    found: set[str] = set()
    for setting in settings_of(loaded.config):
        values = setting.value if isinstance(setting.value, tuple) else (setting.value,)
        for value in values:
            if isinstance(value, SecretStr):
                found.update(_secret_parts(value.get_secret_value()))
            elif isinstance(value, str) and SettingTrait.GUARDED in setting.spot.markers:
                found.update((*_property_secrets(setting, value), *_passwords(value)))
    return frozenset(filter(None, found))


def _property_secrets(setting: Setting, value: str) -> Iterator[str]:
    name = _property_name(setting)
    if name is None or is_harmless(name):
        return
    if announces_secret(name) or name.lower().startswith("header."):
        parts = tuple(_secret_parts(value))
    else:
        parts = (value,)
    shortest = 0 if announces_secret(name) else _SHORTEST_UNKNOWN
    yield from (part for part in parts if len(part) >= shortest)


def _secret_parts(text: str) -> Iterator[str]:
    yield text
    yield from _passwords(text)
    if "://" not in text:
        # OAuth2 client credentials, `Bearer …` and `session=…`: the part behind is the secret one.
        yield text.partition(":")[2]
        yield from (match[1] for match in _SECRET_PART.finditer(text))


def _passwords(text: str) -> Iterator[str]:
    for match in _USER_INFO.finditer(text):
        user, _, password = match["user"].partition(":")
        # A token may be alone before the @, as in Sentry's addresses.
        alone = user if "://" in text and not password and text.startswith("http") else ""
        for part in (password, alone):
            yield from (part, unquote(part))
    for match in _QUERY_SECRET.finditer(text):
        yield from (match["value"], unquote(match["value"]))
    for match in _KEYWORD_PASSWORD.finditer(text):
        yield re.sub(r"\\(.)", r"\1", match[1] or match[2] or "")
