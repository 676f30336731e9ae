"""A small file, on this machine or in a bucket, read completely."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from frazil.clients.object_store import Bucket
from frazil.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from frazil.cli.invocation import Invocation

_SCHEME = "s3://"
_DEFAULT_REGION = "us-east-1"
# Brokers flush segments of a few megabytes; anything larger than this is another file.
MOST_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class StoredFile:
    """The bytes of a file, and the name that the operator gave it."""

    name: str
    data: bytes


def read_file(name: str, invocation: Invocation) -> StoredFile:
    """Read the path or the ``s3://bucket/key``.

    The bucket is reached as ``storage.s3`` of the document says that the command line names;
    without one, as the environment of the AWS tools says.
    """
    if name.startswith(_SCHEME):
        return StoredFile(name, _read_object(name, invocation))
    return StoredFile(name, _read_local(Path(name)))


def _read_local(path: Path) -> bytes:
    try:
        file = path.open("rb")
    except OSError as error:
        message = f"{path} cannot be opened: {error.strerror}."
        raise ConfigError(message, next_step="name a file that is there") from error
    with file:
        try:
            data = file.read(MOST_BYTES + 1)
        except OSError as error:
            message = f"{path} cannot be read: {error.strerror}."
            raise StorageError(message) from error
    if len(data) > MOST_BYTES:
        raise _too_large(str(path))
    return data


def _read_object(address: str, invocation: Invocation) -> bytes:
    name, _, key = address.removeprefix(_SCHEME).partition("/")
    if not name or not key:
        message = f"{address} names no object."
        raise ConfigError(message, next_step="write it as s3://bucket/key")
    bucket = _configured(name, invocation) or _of_environment(name, invocation.environ)
    try:
        if bucket.size(key) > MOST_BYTES:
            raise _too_large(address)
        return bucket.read(key)
    except StorageError as error:
        if not error.is_gone:
            raise
        message = f"{address} is not there."
        raise ConfigError(message, next_step="name an object that is there") from error


def _configured(name: str, invocation: Invocation) -> Bucket | None:
    if invocation.document is None:
        return None
    s3 = invocation.load_quietly().storage.s3
    secret, token = s3.secret_access_key, s3.session_token
    return Bucket(
        name=name,
        region=s3.region,
        endpoint=s3.endpoint,
        path_style=s3.path_style,
        access_key_id=s3.access_key_id,
        secret_access_key=None if secret is None else secret.get_secret_value(),
        session_token=None if token is None else token.get_secret_value(),
    )


def _of_environment(name: str, environ: Mapping[str, str]) -> Bucket:
    """The store finds credentials by itself; where it is, it must be told."""
    endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL")
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or _DEFAULT_REGION
    # Stores that are not AWS rarely have a host name for each bucket.
    return Bucket(name=name, region=region, endpoint=endpoint, path_style=endpoint is not None)


def _too_large(name: str) -> StorageError:
    message = f"{name} is larger than {MOST_BYTES >> 30} GiB, and no segment is."
    return StorageError(message, next_step="name a segment or its index")
