"""TLS in front of a server that has none, with a certificate made for the occasion."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOOPBACK = "127.0.0.1"
PATIENCE_SECONDS = 60.0
CHUNK_BYTES = 64 * 1024
# The length of the request for TLS, which comes before anything else.
REQUEST_BYTES = 8


@dataclass(frozen=True)
class Certificate:
    """A certificate that vouches for itself, and its key, as files."""

    file: Path
    key: Path


def make_certificate(
    folder: Path,
    name: str,
    *,
    address: str = LOOPBACK,
    is_expired: bool = False,
    issuer: Certificate | None = None,
) -> Certificate:
    """A certificate of an address, by default the loopback's, which is no name.

    Without an issuer it vouches for itself, and may vouch for others.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signed_by, signing = subject, key
    if issuer is not None:
        signed_by = x509.load_pem_x509_certificate(issuer.file.read_bytes()).subject
        loaded = serialization.load_pem_private_key(issuer.key.read_bytes(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        signing = loaded
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signed_by)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=2))
        .not_valid_after(now + timedelta(days=-1 if is_expired else 1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .sign(signing, hashes.SHA256())
    )
    made = Certificate(folder / f"{name}.crt", folder / f"{name}.key")
    made.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    made.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return made


def make_trust_store(folder: Path, *trusted: Certificate) -> Path:
    """The certificates as a store of authorities for a JVM; its password is its name."""
    store = folder / "truststore"
    entries = [
        pkcs12.PKCS12Certificate(
            x509.load_pem_x509_certificate(each.file.read_bytes()), each.file.stem.encode()
        )
        for each in trusted
    ]
    secret = serialization.BestAvailableEncryption(store.name.encode())
    store.write_bytes(pkcs12.serialize_java_truststore(entries, secret))
    return store


@contextmanager
def server_without_tls(received: list[bytes]) -> Iterator[int]:
    """A Postgres that refuses TLS and hopes for a password; what it receives is kept."""
    with socket.create_server((LOOPBACK, 0)) as server:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    client = server.accept()[0]
                    client.settimeout(PATIENCE_SECONDS)
                    with client, suppress(OSError):
                        client.recv(REQUEST_BYTES)
                        client.sendall(b"N")
                        received.append(client.recv(CHUNK_BYTES))

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield int(server.getsockname()[1])
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(PATIENCE_SECONDS)


@contextmanager
def tls_front(port: int, certificate: Certificate, *, is_postgres: bool = True) -> Iterator[int]:
    """Take TLS on the port that is given and pass it on as plain text, for the block.

    A client of Postgres requests TLS first, any other begins with it.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.file, certificate.key)
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server((LOOPBACK, 0)))
        threads: list[threading.Thread] = []

        def accept() -> None:
            # Ends when the socket is shut down below.
            with suppress(OSError):
                while True:
                    client = server.accept()[0]
                    threads.append(
                        threading.Thread(target=_serve, args=(client, context, port, is_postgres))
                    )
                    threads[-1].start()

        threads.append(threading.Thread(target=accept))
        threads[0].start()
        try:
            yield int(server.getsockname()[1])
        finally:
            server.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join(PATIENCE_SECONDS)


def _serve(
    client: socket.socket,
    context: ssl.SSLContext,
    port: int,
    is_postgres: bool,  # noqa: FBT001
) -> None:
    client.settimeout(PATIENCE_SECONDS)
    # A client that does not like the certificate leaves, which is the point.
    with client, suppress(OSError):
        if is_postgres:
            client.recv(REQUEST_BYTES)
            client.sendall(b"S")
        with (
            context.wrap_socket(client, server_side=True) as secure,
            socket.create_connection((LOOPBACK, port), timeout=PATIENCE_SECONDS) as upstream,
        ):
            _pump(secure, upstream)


def _pump(secure: ssl.SSLSocket, upstream: socket.socket) -> None:
    while True:
        ready = [secure] if secure.pending() else []
        readable = ready or select.select([secure, upstream], [], [], PATIENCE_SECONDS)[0]
        for source in readable:
            data = source.recv(CHUNK_BYTES)
            if not data:
                return
            (upstream if source is secure else secure).sendall(data)
