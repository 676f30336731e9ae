"""The mapping from our configuration to Iceberg's catalog properties."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from frazil.clients.postgres import tls
from frazil.model.policy import CatalogKind

if TYPE_CHECKING:
    from frazil.clients.postgres.dsn import SecretText
    from frazil.config.models.catalog import S3, Azure, Catalog, Storage

S3_FILE_IO = "org.apache.iceberg.aws.s3.S3FileIO"
GCS_FILE_IO = "org.apache.iceberg.gcp.gcs.GCSFileIO"
ADLS_FILE_IO = "org.apache.iceberg.azure.adlsv2.ADLSFileIO"

_JDBC_POSTGRES = "jdbc:postgresql:"
_JAVAS_ROOTS = "org.postgresql.ssl.DefaultJavaSSLFactory"

_S3_SCHEMES = frozenset({"s3", "s3a"})
_GCS_SCHEMES = frozenset({"gs"})
_AZURE_SCHEMES = frozenset({"abfs", "abfss"})

# SQLite has one writer; the others wait for it this long before they fail.
_SQLITE_BUSY_MILLISECONDS = 30_000


def catalog_properties(catalog: Catalog, storage: Storage) -> dict[str, str]:
    """Iceberg's properties for this catalog; the user's own ``catalog.properties`` win."""
    match catalog.kind:
        case CatalogKind.SQL:
            properties = _sql(catalog)
        case CatalogKind.REST:
            properties = _rest(catalog, storage)
        case CatalogKind.GLUE:
            properties = {"type": "glue", "client.region": catalog.region}
        case CatalogKind.HIVE:
            # Hive's own locks lose commits (HIVE-26882); the compare-and-swap needs none.
            properties = {"type": "hive", "uri": catalog.uri, "hive.lock-enabled": "false"}
        case _:
            assert_never(catalog.kind)
    given = {"warehouse": catalog.warehouse, **_file_io(catalog, storage), **properties}
    known = {key: value for key, value in given.items() if value is not None}
    return _with_tls(known | dict(catalog.properties))


def needs_aws(catalog: Catalog) -> bool:
    """Whether tables are in S3, or may be: a REST catalog resolves a named warehouse later."""
    scheme = _scheme(catalog)
    if catalog.kind is CatalogKind.REST and not scheme:
        return True
    return scheme in _S3_SCHEMES or catalog.kind is CatalogKind.GLUE


def needs_gcp(catalog: Catalog) -> bool:
    """Whether tables are in Google's store."""
    return _scheme(catalog) in _GCS_SCHEMES


def needs_azure(catalog: Catalog) -> bool:
    """Whether tables are in Azure's store."""
    return _scheme(catalog) in _AZURE_SCHEMES


def _scheme(catalog: Catalog) -> str:
    return urlsplit(catalog.warehouse or "").scheme


def _sql(catalog: Catalog) -> dict[str, str | None]:
    # V1 keeps views too; Java's default is V0.
    implementation: dict[str, str | None] = {
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "jdbc.schema-version": "V1",
    }
    uri = catalog.uri or ""
    if uri.startswith("sqlite:///"):
        file = uri.removeprefix("sqlite:///")
        return implementation | {
            "uri": f"jdbc:sqlite:{file}?busy_timeout={_SQLITE_BUSY_MILLISECONDS}"
        }
    parts = urlsplit(uri)
    address = parts.netloc.rpartition("@")[2]
    query = f"?{parts.query}" if parts.query else ""
    return implementation | {
        "uri": f"jdbc:postgresql://{address}{parts.path}{query}",
        "jdbc.user": None if parts.username is None else unquote(parts.username),
        "jdbc.password": None if parts.password is None else unquote(parts.password),
    }


def _with_tls(properties: dict[str, str]) -> dict[str, str]:
    """The same TLS rule for a catalog in Postgres as for a source.

    Left alone the driver takes ``prefer``, and then a server that refuses TLS gets the password.
    """
    address, _, query = properties.get("uri", "").partition("?")
    if not address.startswith(_JDBC_POSTGRES):
        return properties
    given = dict(parse_qsl(query, keep_blank_values=True))
    # In the address a setting wins over the property of that name.
    known = {key.removeprefix("jdbc."): text for key, text in properties.items()} | given
    mode_given = known.get("sslmode", tls.VERIFIED if known.get("ssl") in {"", "true"} else None)
    mode = tls.sslmode(mode_given, _hosts(address.removeprefix(_JDBC_POSTGRES)))
    kept = {key: text for key, text in given.items() if key != "ssl"} | {"sslmode": mode}
    roots = known.get("sslrootcert", None if tls.has_users_roots() else "system")
    if mode == tls.VERIFIED and roots == "system":
        # What libpq calls the authorities of the system are those of the JVM.
        kept.pop("sslrootcert", None)
        kept.setdefault("sslfactory", known.get("sslfactory", _JAVAS_ROOTS))
    return properties | {"uri": f"{address}?{urlencode(kept, safe='/:,')}"}


def _hosts(rest: str) -> list[str]:
    """The hosts of a JDBC address; without its slashes it is a database on this machine."""
    if not rest.startswith("//"):
        return [""]
    authority = rest.removeprefix("//").partition("/")[0]
    return [urlsplit(f"//{each}").hostname or "" for each in authority.split(",")]


def _rest(catalog: Catalog, storage: Storage) -> dict[str, str | None]:
    properties: dict[str, str | None] = {"type": "rest", "uri": catalog.uri}
    if catalog.sigv4 is not None:
        properties |= {
            "rest.auth.type": "sigv4",
            "rest.signing-region": catalog.sigv4.region,
            "rest.signing-name": catalog.sigv4.service,
            "rest.access-key-id": storage.s3.access_key_id,
            "rest.secret-access-key": _revealed(storage.s3.secret_access_key),
            "rest.session-token": _revealed(storage.s3.session_token),
        }
    elif catalog.token is not None or catalog.credential is not None:
        properties |= {
            "rest.auth.type": "oauth2",
            "token": _revealed(catalog.token),
            "credential": _revealed(catalog.credential),
            "oauth2-server-uri": catalog.oauth2_server_uri,
            "scope": catalog.scope,
        }
    if storage.s3.access_key_id is None:
        # Without keys of our own we request some from the catalog; one that has none ignores it.
        properties["header.X-Iceberg-Access-Delegation"] = "vended-credentials"
    return properties


def _file_io(catalog: Catalog, storage: Storage) -> dict[str, str | None]:
    if needs_aws(catalog):
        # A warehouse known by name only may turn out to lie elsewhere: then Iceberg chooses.
        chosen = S3_FILE_IO if _scheme(catalog) or catalog.kind is CatalogKind.GLUE else None
        return {"io-impl": chosen, **_s3(storage.s3)}
    if needs_gcp(catalog):
        return {"io-impl": GCS_FILE_IO}
    if needs_azure(catalog):
        return {"io-impl": ADLS_FILE_IO, **_azure(storage.azure)}
    return {}


def _s3(s3: S3) -> dict[str, str | None]:
    return {
        "s3.endpoint": s3.endpoint,
        "client.region": s3.region,
        "s3.access-key-id": s3.access_key_id,
        "s3.secret-access-key": _revealed(s3.secret_access_key),
        "s3.session-token": _revealed(s3.session_token),
        "s3.path-style-access": "true" if s3.path_style else None,
        "s3.sse.type": s3.sse,
        "s3.sse.key": s3.kms_key,
    }


def _azure(azure: Azure) -> dict[str, str | None]:
    account = azure.account
    return {
        "adls.auth.shared-key.account.name": account if azure.key is not None else None,
        "adls.auth.shared-key.account.key": _revealed(azure.key),
        f"adls.sas-token.{account}": _revealed(azure.sas),
    }


def _revealed(secret: SecretText | None) -> str | None:
    return None if secret is None else secret.get_secret_value()
