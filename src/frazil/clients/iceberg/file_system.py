"""Files at a table's locations, opened with the properties of the table's FileIO.

A location is used exactly as the table has it; nothing is decoded or made absolute.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs as pf

from frazil.clients.iceberg.file_access import access_to
from frazil.codec.malformed import MalformedFileError
from frazil.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

_S3_SCHEMES = frozenset({"s3", "s3a", "s3n"})
_GCS_SCHEMES = frozenset({"gs", "gcs"})
_AZURE_SCHEMES = frozenset({"abfs", "abfss"})
# The region that S3-compatible stores expect by default.
_ANY_REGION = "us-east-1"
_NEVER = datetime(9999, 1, 1, tzinfo=UTC)
_BLOB_HOST = ".dfs.core.windows.net"
# Other writers decide how large files are, and a read is held in memory: an index head that names
# a million files takes a third of this.
LARGEST_READ = 1 << 30

# Each of these changes what is stored or who may write it, and Arrow does not support it.
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
    """The store of the location; raises ConfigError naming what Arrow does not support."""
    scheme, separator, rest = location.partition(":")
    if not separator or "/" in scheme:
        return Store(pf.LocalFileSystem, location)
    if scheme == "file":
        # Both file:/x and file:///x are in use; a host is not supported.
        path = rest.removeprefix("//")
        if path.startswith("/"):
            return Store(pf.LocalFileSystem, path)
    properties = access_to(location, properties)
    _refuse_unsupported(properties)
    if scheme in _S3_SCHEMES:
        return Store(pf.S3FileSystem, rest.removeprefix("//"), _s3(properties))
    if scheme in _GCS_SCHEMES:
        return Store(pf.GcsFileSystem, rest.removeprefix("//"), _gcs(properties))
    if scheme in _AZURE_SCHEMES:
        return _azure(location, properties)
    message = f"files at {scheme[:20]}: locations cannot be opened"
    raise ConfigError(message)


class _Connections:
    """One connection per store, for the duration of the task."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties
        self._systems: dict[tuple[object, ...], pf.FileSystem] = {}

    def plan(self, location: str) -> Store:
        """The store of the location; raises ConfigError."""
        return plan_store(location, self._properties)

    def open(self, store: Store) -> pf.FileSystem:
        """The file system of the store; raises OSError, or ConfigError for partial credentials."""
        key = (store.kind, store.arguments)
        if key not in self._systems:
            try:
                # Concurrent threads create one each, and all but one are dropped.
                self._systems[key] = store.kind(**dict(store.arguments))
            except ValueError as error:
                names = ", ".join(name for name, _ in store.arguments)
                message = f"the file system properties for {names} do not go together"
                raise ConfigError(message) from error
        return self._systems[key]


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file in a store; ``modified`` is in seconds since the epoch."""

    location: str
    size: int
    modified: float


class OutputFiles:
    """Creates files; one connection per store, for the duration of the task."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._connections = _Connections(properties)

    def create(self, location: str) -> pa.NativeFile:
        """A stream into a new file, with the folders it needs; raises StorageError."""
        store = self._connections.plan(location)
        try:
            system = self._connections.open(store)
            if store.kind is pf.LocalFileSystem:
                system.create_dir(store.path.rpartition("/")[0] or "/", recursive=True)
            return system.open_output_stream(store.path)
        except OSError as error:
            message = f"a data file cannot be created at {location}"
            raise StorageError(message) from error

    def write_file(self, location: str, data: bytes | memoryview) -> None:
        """Write a new file in one call, with the folders it needs; raises StorageError."""
        stream = self.create(location)
        try:
            with stream:
                stream.write(data)
        except OSError as error:
            message = f"the file {location} cannot be written"
            raise StorageError(message) from error

    def remove(self, location: str) -> None:
        """Remove a file; a missing one is not an error. Raises StorageError."""
        store = self._connections.plan(location)
        try:
            self._connections.open(store).delete_file(store.path)
        except FileNotFoundError:
            return
        except OSError as error:
            message = f"the file {location} cannot be removed"
            raise StorageError(message) from error


class InputFiles:
    """Reads files; thread-safe, one connection per store.

    Everything raises StorageError; ``is_missing`` separates a missing file from an unavailable
    store. A read of more than ``LARGEST_READ`` bytes is refused with MalformedFileError.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._connections = _Connections(properties)

    def open(self, location: str) -> pa.NativeFile:
        """The file for random access; what is read from it raises OSError."""
        store = self._connections.plan(location)
        try:
            return self._connections.open(store).open_input_file(store.path)
        except OSError as error:
            raise _unreadable(location, error) from error

    def read(self, location: str) -> bytes:
        """All bytes of the file."""
        try:
            with self.open(location) as file:
                _refuse_large(file.size())
                return bytes(file.read())
        except OSError as error:
            raise _unreadable(location, error) from error

    def read_range(self, location: str, offset: int, length: int) -> bytes:
        """Up to ``length`` bytes from ``offset``; fewer at the end of the file."""
        with self.ranges(location) as read:
            return read(offset, length)

    @contextmanager
    def ranges(self, location: str) -> Iterator[Callable[[int, int], bytes]]:
        """``read_range`` of one file that is opened once; not thread-safe."""
        with self.open(location) as file:

            def read(offset: int, length: int) -> bytes:
                try:
                    # Stores differ in what they return beyond the end.
                    within = min(length, max(file.size() - offset, 0))
                    _refuse_large(within)
                    return bytes(file.read_at(within, offset)) if within else b""
                except OSError as error:
                    raise _unreadable(location, error) from error

            yield read

    def exists(self, location: str) -> bool:
        """Whether there is a file."""
        store = self._connections.plan(location)
        try:
            found = self._connections.open(store).get_file_info(store.path)
        except OSError as error:
            raise _unreadable(location, error) from error
        return bool(found.type == pf.FileType.File)

    def sizes(self, folder: str) -> dict[str, int]:
        """The files directly in a folder with their sizes, by name; none without the folder."""
        store = self._connections.plan(folder)
        selector = pf.FileSelector(store.path, allow_not_found=True)
        try:
            found = self._connections.open(store).get_file_info(selector)
        except OSError as error:
            raise _unreadable(folder, error) from error
        return {each.base_name: each.size for each in found if each.type == pf.FileType.File}

    def iter_tree(self, folder: str) -> Iterator[ListedFile]:
        """All files below a folder, at any depth, one folder at a time; none without the folder."""
        store = self._connections.plan(folder.rstrip("/"))
        waiting = [store.path]
        while waiting:
            selector = pf.FileSelector(waiting.pop(), allow_not_found=True)
            try:
                found = self._connections.open(store).get_file_info(selector)
            except OSError as error:
                raise _unreadable(folder, error) from error
            for each in found:
                if each.type == pf.FileType.Directory:
                    waiting.append(each.path)
                elif each.type == pf.FileType.File and each.mtime_ns is not None:
                    below = each.path.removeprefix(store.path).lstrip("/")
                    location = f"{folder.rstrip('/')}/{below}"
                    yield ListedFile(location, each.size, each.mtime_ns / 1e9)


def is_within(location: str, folders: Iterable[str]) -> bool:
    """Whether a file is in one of the folders, whatever the spelling of their store."""
    scheme, path = _spelled_out(location)
    for folder in folders:
        store, start = _spelled_out(f"{folder.rstrip('/')}/")
        if store == scheme and path.startswith(start):
            return not {"..", "."} & set(path.removeprefix(start).split("/"))
    return False


def _spelled_out(location: str) -> tuple[str, str]:
    """Store and path of a location as ``plan_store`` would open it."""
    scheme, separator, rest = location.partition(":")
    if not separator or "/" in scheme:
        return "file", location
    for same in (_S3_SCHEMES, _GCS_SCHEMES, _AZURE_SCHEMES):
        if scheme in same:
            return min(same), rest.removeprefix("//")
    return scheme, rest.removeprefix("//")


def _refuse_large(size: int) -> None:
    if size > LARGEST_READ:
        what = f"expected at most {LARGEST_READ} bytes, found {size}"
        raise MalformedFileError(what, offset=0)


def is_missing(error: StorageError) -> bool:
    """Whether a file could not be read because it is not there, by the store's own word."""
    return error.is_gone


def _unreadable(location: str, cause: OSError) -> StorageError:
    error = StorageError(f"the file {location} cannot be read")
    error.is_gone = isinstance(cause, FileNotFoundError)
    return error


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
    # Arrow needs an expiry for every token; one without is assumed to outlive the task.
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
    # Not parsed as a URL: a path may have characters that begin a query.
    authority, _, path = location.partition("://")[2].partition("/")
    container, _, host = authority.rpartition("@")
    account, _, _ = host.partition(".")
    if not container or not account:
        message = "an Azure location must have the form abfss://container@account.host/path"
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
