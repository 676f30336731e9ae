"""Output streams at a table's locations, opened with the properties of the table's FileIO.

A location is written as the table spells it; nothing is decoded or made absolute.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs as pf

from frazil.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from collections.abc import Mapping

_S3_SCHEMES = frozenset({"s3", "s3a", "s3n"})
_GCS_SCHEMES = frozenset({"gs", "gcs"})
_AZURE_SCHEMES = frozenset({"abfs", "abfss"})
# What stores that are not Amazon's expect when nobody chose.
_ANY_REGION = "us-east-1"
_NEVER = datetime(9999, 1, 1, tzinfo=UTC)
_BLOB_HOST = ".dfs.core.windows.net"

# Each of these would change what is stored or who may write it, and Arrow cannot do it.
_REFUSED_FLAGS = (
    "s3.remote-signing-enabled",
    "s3.write.table-tag-enabled",
    "s3.write.namespace-tag-enabled",
    "s3.access-grants.enabled",
)
_REFUSED_PREFIXES = (
    "s3.write.tags.",
    "s3.access-points.",
    "s3.write.storage-class",
    "s3.acl",
    "s3.client-factory-impl",
    "client.factory",
    "client.credentials-provider",
    "gcs.encryption-key",
    "gcs.impersonate.",
    "adls.connection-string.",
    "adls.token",
)


@dataclass(frozen=True, slots=True)
class Store:
    """Which of Arrow's file systems opens a location, and with which arguments."""

    kind: type[pf.FileSystem]
    path: str
    arguments: tuple[tuple[str, object], ...] = field(default=(), repr=False)


def plan_store(location: str, properties: Mapping[str, str]) -> Store:
    """Where the location is; raises ConfigError for what Arrow cannot do, by name."""
    scheme, separator, rest = location.partition(":")
    if not separator or "/" in scheme:
        return Store(pf.LocalFileSystem, location)
    if scheme == "file":
        # Both file:/x and file:///x are in use; with a host in between it would not be ours.
        path = rest.removeprefix("//")
        if path.startswith("/"):
            return Store(pf.LocalFileSystem, path)
    _refuse_unsupported(properties)
    if scheme in _S3_SCHEMES:
        return Store(pf.S3FileSystem, rest.removeprefix("//"), _s3(properties))
    if scheme in _GCS_SCHEMES:
        return Store(pf.GcsFileSystem, rest.removeprefix("//"), _gcs(properties))
    if scheme in _AZURE_SCHEMES:
        return _azure(location, properties)
    message = f"files at {scheme[:20]}: locations cannot be written"
    raise ConfigError(message)


class OutputFiles:
    """Opens new files; one connection per store, for as long as the task runs."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties
        self._systems: dict[tuple[object, ...], pf.FileSystem] = {}

    def create(self, location: str) -> pa.NativeFile:
        """A stream into a new file, with the folders it needs; raises StorageError."""
        store = plan_store(location, self._properties)
        try:
            system = self._system(store)
            if store.kind is pf.LocalFileSystem:
                system.create_dir(store.path.rpartition("/")[0] or "/", recursive=True)
            return system.open_output_stream(store.path)
        except OSError as error:
            message = f"a data file cannot be created at {location}"
            raise StorageError(message) from error

    def _system(self, store: Store) -> pf.FileSystem:
        key = (store.kind, store.arguments)
        if key not in self._systems:
            self._systems[key] = store.kind(**dict(store.arguments))
        return self._systems[key]


def _refuse_unsupported(properties: Mapping[str, str]) -> None:
    set_ = [name for name in _REFUSED_FLAGS if properties.get(name, "").lower() == "true"]
    set_ += [name for name in sorted(properties) if name.startswith(_REFUSED_PREFIXES)]
    if properties.get("s3.sse.type", "none").lower() != "none":
        set_.append("s3.sse.type")
    if set_:
        message = f"the file system property {set_[0]} is set, which our writer cannot follow"
        raise ConfigError(message)


def _arguments(**given: object) -> tuple[tuple[str, object], ...]:
    return tuple((name, value) for name, value in given.items() if value is not None)


def _s3(properties: Mapping[str, str]) -> tuple[tuple[str, object], ...]:
    endpoint = properties.get("s3.endpoint")
    path_style = properties.get("s3.path-style-access", "false").lower() == "true"
    region = properties.get("client.region") or properties.get("s3.region")
    return _arguments(
        access_key=properties.get("s3.access-key-id"),
        secret_key=properties.get("s3.secret-access-key"),
        session_token=properties.get("s3.session-token"),
        region=region or (_ANY_REGION if endpoint else None),
        endpoint_override=endpoint,
        # Arrow addresses by path whenever there is an endpoint, and by host otherwise.
        force_virtual_addressing=True if endpoint and not path_style else None,
    )


def _gcs(properties: Mapping[str, str]) -> tuple[tuple[str, object], ...]:
    token = properties.get("gcs.oauth2.token")
    expires = properties.get("gcs.oauth2.token-expires-at", "")
    # Arrow wants an end for every token; one without is taken to outlive the task.
    end = datetime.fromtimestamp(int(expires) / 1000, UTC) if expires.isdecimal() else _NEVER
    host = properties.get("gcs.service.host")
    parts = urlsplit(host) if host else None
    return _arguments(
        anonymous=True if properties.get("gcs.no-auth", "").lower() == "true" else None,
        access_token=token,
        credential_token_expiration=end if token else None,
        project_id=properties.get("gcs.project-id"),
        scheme=parts.scheme if parts else None,
        endpoint_override=parts.netloc if parts else None,
    )


def _azure(location: str, properties: Mapping[str, str]) -> Store:
    # Not parsed as a URL: a path may hold what a URL takes for a query.
    authority, _, path = location.partition("://")[2].partition("/")
    container, _, host = authority.rpartition("@")
    account, _, _ = host.partition(".")
    if not container or not account:
        message = "an Azure location must look like abfss://container@account.host/path"
        raise ConfigError(message)
    named = properties.get("adls.auth.shared-key.account.name")
    key = properties.get("adls.auth.shared-key.account.key")
    tokens = (f"adls.sas-token.{host}", f"adls.sas-token.{account}")
    sas = next((properties[name] for name in tokens if name in properties), None)
    arguments = _arguments(
        account_name=account,
        account_key=key if named in {None, account} else None,
        sas_token=sas,
        dfs_storage_authority=None if host.endswith(_BLOB_HOST) else host,
    )
    return Store(pf.AzureFileSystem, f"{container}/{path}", arguments)
