"""An etcd with TLS and users, one of whom may only read."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from frazil.demo.services import etcd as start_etcd
from tests.support.faults.tls_front import make_certificate
from tests.support.kafscale.etcd_history import request

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from frazil.demo.services import EtcdServer

PASSWORD = "canary-51c0"


@contextmanager
def guarded_etcd(folder: Path) -> Iterator[tuple[EtcdServer, Path]]:
    """The server and the certificate to trust; ``writer`` may write below processors/."""
    certificate = make_certificate(folder, "etcd")
    with start_etcd(certificate=(certificate.file, certificate.key)) as server:
        for user, permission in (("root", None), ("reader", "READ"), ("writer", "READWRITE")):
            request(server.endpoint, "auth/user/add", name=user, password=PASSWORD)
            request(server.endpoint, "auth/role/add", name=user)
            request(server.endpoint, "auth/user/grant", user=user, role=user)
            if permission is not None:
                # processors/ to processors0: every key below the prefix.
                keys = {"key": "cHJvY2Vzc29ycy8=", "range_end": "cHJvY2Vzc29yczA="}
                allowed = {"permType": permission, **keys}
                request(server.endpoint, "auth/role/grant", name=user, perm=allowed)
        request(server.endpoint, "auth/enable")
        yield server, certificate.file
