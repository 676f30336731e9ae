"""Objects of one S3 bucket by their keys: listed from any key on, and read many at a time."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from frazil.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

    from obstore.store import S3Config

# A store that does not answer so long is away; what read from it tries again later.
_ANSWER = timedelta(seconds=20)
_RETRY = timedelta(seconds=30)
# Small objects cost a round trip each; more connections than this do not help one process.
CONNECTIONS = 16


@dataclass(frozen=True, slots=True)
class StoredObject:
    """What a listing says about an object."""

    key: str
    size: int


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """One bucket; made to travel to tasks, where it connects by itself.

    Without keys the usual chain of credentials applies. Everything raises StorageError.
    """

    name: str
    region: str
    endpoint: str | None = None
    path_style: bool = False
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, object]:
        # Without the connection.
        return {name: value for name, value in vars(self).items() if name != "_store"}

    def list_after(self, prefix: str, after: str) -> Iterator[StoredObject]:
        """Objects below a prefix whose keys come after this one, in the order of keys."""
        with _failing_as("listing objects", prefix):
            for page in obstore.list(self._store, prefix, offset=after or None):
                for each in page:
                    yield StoredObject(each["path"], each["size"])

    def list_folders(self, prefix: str) -> tuple[str, ...]:
        """The names one level below a prefix that have objects below them."""
        with _failing_as("listing objects", prefix):
            found = obstore.list_with_delimiter(self._store, prefix)["common_prefixes"]
        return tuple(sorted(each.rstrip("/").rpartition("/")[2] for each in found))

    def size(self, key: str) -> int:
        """How many bytes an object has."""
        with _failing_as("asking for", key):
            return obstore.head(self._store, key)["size"]

    def read(self, key: str, *, at_most: int | None = None) -> bytes:
        """All bytes of an object; none of one that has more than ``at_most``."""
        with _failing_as("reading", key):
            found = obstore.get(self._store, key)
            if at_most is None or found.meta["size"] <= at_most:
                return found.bytes().to_bytes()
        failure = StorageError(f"reading {key} failed: it has more than {at_most} bytes")
        failure.is_too_large = True
        raise failure

    def read_end(self, key: str, length: int) -> bytes:
        """The last bytes of an object."""
        with _failing_as("reading", key):
            end = obstore.get(self._store, key, options={"range": {"suffix": length}})
            return end.bytes().to_bytes()

    def read_each(
        self, keys: Iterable[str], *, connections: int = CONNECTIONS, at_most: int | None = None
    ) -> Iterator[tuple[str, bytes | StorageError]]:
        """Objects in the order of their keys here, with what failed in its place.

        No more than ``connections`` are in memory in addition to the one that is used.
        """
        return _each(lambda key: self.read(key, at_most=at_most), keys, connections)

    def read_each_end(
        self, keys: Iterable[str], length: int
    ) -> Iterator[tuple[str, bytes | StorageError]]:
        """The last bytes of each, likewise."""
        return _each(lambda key: self.read_end(key, length), keys, CONNECTIONS)

    @cached_property
    def _store(self) -> S3Store:
        config: S3Config = {
            "region": self.region,
            "virtual_hosted_style_request": not self.path_style,
        }
        if self.endpoint is not None:
            config["endpoint"] = self.endpoint
        if self.access_key_id is not None and self.secret_access_key is not None:
            config["access_key_id"] = self.access_key_id
            config["secret_access_key"] = self.secret_access_key
        if self.session_token is not None:
            config["session_token"] = self.session_token
        return S3Store(
            self.name,
            config=config,
            # Whether clear text may carry what is sent was decided when the settings were read.
            client_options={"allow_http": True, "timeout": _ANSWER, "connect_timeout": _ANSWER},
            retry_config={"retry_timeout": _RETRY},
        )


def _each(
    read: Callable[[str], bytes], keys: Iterable[str], connections: int
) -> Iterator[tuple[str, bytes | StorageError]]:
    def attempt(key: str) -> bytes | StorageError:
        try:
            return read(key)
        except StorageError as error:
            return error

    pending: deque[tuple[str, Future[bytes | StorageError]]] = deque()
    with ThreadPoolExecutor(connections) as threads:
        for key in keys:
            pending.append((key, threads.submit(attempt, key)))
            if len(pending) >= connections:
                first, found = pending.popleft()
                yield first, found.result()
        for key, found in pending:
            yield key, found.result()


@contextmanager
def _failing_as(doing: str, key: str) -> Iterator[None]:
    try:
        yield
    except (BaseError, OSError) as error:
        # The store's own text may have signed addresses.
        message = f"{doing} {key} failed: {type(error).__name__.removesuffix('Error')}"
        failure = StorageError(message)
        failure.is_gone = isinstance(error, FileNotFoundError)
        raise failure from None
