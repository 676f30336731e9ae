"""What is secret in a configuration: found for telemetry, masked in output.

Of the properties of Iceberg and of Spark those that are listed may be shown; every other one counts
as a secret. A list of names that announce a secret is never complete: ``header.Cookie`` and
``s3.sse.key`` were missing from ours. The expressions are read by Python and, for Spark's own
redaction, by Java.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from pydantic import SecretStr

from frazil.config.loading.settings import Setting, Shape, settings_of, spot_at
from frazil.config.models.values import SettingTrait

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.config.loader import LoadedConfig

# Values of these may still be addresses: passwords inside of those are masked on their own.
_CATALOG: Final = (
    r"type|catalog-impl|io-impl|uri|warehouse|prefix|scope|oauth2-server-uri|client\.region"
    r"|clients|default-namespace|namespace-separator|file-io-impl"
    r"|cache-enabled|cache\.[a-z.-]+|io\.manifest\.cache[a-z.-]*|metrics-reporter-impl"
    r"|lock-impl|lock\.[a-z.-]+|hive\.[a-z.-]+|table-(?:default|override)\.[\w.-]+"
    r"|jdbc\.(?:schema-version|strict-mode|init-catalog-tables)"
    r"|rest\.auth\.type|rest\.sigv4-enabled|rest\.signing-(?:region|name)"
    r"|rest-metrics-reporting-enabled|rest-page-size|view-endpoints-supported"
    r"|snapshot-loading-mode|header\.X-Iceberg-Access-Delegation"
    r"|http-client\.(?:type|(?:apache|urlconnection)\.[a-z-]+)"
    r"|s3\.(?:endpoint|region|path-style-access|acl|sse\.type|staging-dir|multipart\.[a-z.-]+"
    r"|checksum-enabled|retry\.[a-z.-]+|delete[a-z.-]*|write\.[a-z.-]+|use-arn-region-enabled"
    r"|acceleration-enabled|dualstack-enabled|cross-region-access-enabled|preload-client-enabled"
    r"|remote-signing-enabled|analytics-accelerator\.[a-z.-]+|crt\.[a-z.-]+)"
    r"|glue\.(?:id|endpoint|skip-archive|skip-name-validation)|dynamodb\.(?:endpoint|table-name)"
    r"|gcs\.(?:project-id|service\.host|user-project|channel\.[a-z.-]+)"
    r"|adls\.(?:read|write)\.[a-z.-]+|adls\.auth\.shared-key\.account\.name"
)
_SPARK: Final = (
    r"spark\.(?:master|app\.name|submit\.deployMode|local\.dir|jars|jars\.packages|eventLog\.[\w.]+"
    r"|(?:driver|executor)\.(?:cores|memory|memoryOverhead(?:Factor)?|maxResultSize|instances"
    r"|host|port|bindAddress|heartbeatInterval|logs\.[\w.]+|resource\.[\w.]+)"
    r"|(?:dynamicAllocation|memory|shuffle|scheduler|speculation|task|locality|broadcast|default"
    r"|cleaner|rdd|storage|reducer|io|kryo|network|rpc|blockManager|serializer|python|pyspark"
    r"|files|excludeOnFailure|decommission|stage|port)(?:\.[\w.]+)?"
    r"|authenticate|network\.crypto\.enabled|io\.encryption\.enabled"
    r"|ssl(?:\.\w+)?\.(?:enabled|port|protocol|enabledAlgorithms|needClientAuth)"
    r"|ui\.(?:enabled|port|showConsoleProgress|prometheus\.enabled|retained\w+)"
    r"|redaction\.regex|sql\.redaction\.\w+(?:\.regex)?"
    r"|sql\.(?:adaptive|shuffle|files|session|ansi|parquet|orc|iceberg|execution|sources|optimizer|cbo"
    r"|join|legacy|codegen|inMemoryColumnarStorage|statistics|hive\.metastore|warehouse|debug)\.[\w.]+"
    r"|sql\.(?:autoBroadcastJoinThreshold|broadcastTimeout|extensions|caseSensitive|defaultCatalog"
    r"|timestampType|storeAssignmentPolicy|catalogImplementation|maxPlanStringLength))"
)
# Parts that make a name suspect, whatever family it belongs to.
TELLING_WORDS: Final = (
    r"secret|passw|passphrase|passcode|pwd|token|credential|private|signature|cookie|authorization"
    r"|access[._-]?key|api[._-]?key|shared-key|account[._-]key|sse[._-]?[a-z.]*key"
    r"|(?:^|[._-])(?:sas|dsn)(?:$|[._-])"
)
_TELLING: Final = re.compile(rf"{TELLING_WORDS}|(?:^|[._-])(?:key|auth)(?:$|[._-])", re.IGNORECASE)
# Shown although the name is suspect: the name of an account, or of a way to sign in.
_KNOWN: Final = re.compile(
    r"spark\.authenticate|.*\.auth\.type|(?:.*\.)?adls\.auth\.shared-key\.account\.name"
    r"|(?:.*\.)?header\.X-Iceberg-Access-Delegation"
)
_HARMLESS: Final = re.compile(rf"{_CATALOG}|{_SPARK}|spark\.sql\.catalog\.\w+(?:\.(?:{_CATALOG}))?")

# For Spark, which matches it against names and values: names of settings begin with `spark.`.
SPARK_SECRETS: Final = (
    rf"(?i:{TELLING_WORDS})|://[^/?#@\s]*:[^/?#\s]*@"
    rf"|^(?!(?:{_SPARK}|spark\.sql\.catalog\.\w+(?:\.(?:{_CATALOG}))?)$)spark\."
)


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


def announces_secret(name: str) -> bool:
    """Whether the name of a property says that its value is a secret."""
    return _TELLING.search(name) is not None and _KNOWN.fullmatch(name) is None


def is_harmless(name: str) -> bool:
    """Whether the value of a property of Iceberg's or Spark's may be shown."""
    return _HARMLESS.fullmatch(name) is not None and not announces_secret(name)


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
