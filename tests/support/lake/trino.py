"""Trino, as a reader of tables that frazil wrote: a server of one node on loopback."""

from __future__ import annotations

import json
from base64 import b64decode
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal as DecimalValue
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

from frazil.demo.services.ports import LOOPBACK, request, start_on_free_ports
from frazil.demo.services.process import Launch, RunningService, Service
from frazil.demo.services.workspace import Workspace, workspace
from frazil.model.schema.types import Decimal, Fixed, List, Map, Primitive, Struct
from tools.deploy.fetch_trino import trino_folder, trino_java

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from frazil.demo.services import ObjectStore, RestCatalog
    from frazil.model.schema.types import Type

# A query plans, reads and answers within seconds; a JVM that starts may take long.
PATIENCE_SECONDS = 120
_USER = {
    "X-Trino-User": "tests",
    "X-Trino-Time-Zone": "UTC",
    # Without it times have milliseconds.
    "X-Trino-Client-Capabilities": "PARAMETRIC_DATETIME",
}
# As Trino's own launcher has them, with a quarter of the heap that it would take.
_JVM_OPTIONS = (
    "-Xmx1500M",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "--enable-native-access=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--sun-misc-unsafe-memory-access=allow",
    "-Djdk.attach.allowAttachSelf=true",
    "-Djava.net.preferIPv4Stack=true",
)


class TrinoError(Exception):
    """What the server says of a query that failed."""


@dataclass(frozen=True, slots=True)
class TrinoRows:
    """Rows in the order of the columns, with values as JSON has them."""

    column_names: tuple[str, ...]
    rows: list[list[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trino(RunningService):
    """A running server; its catalog is called ``lake``."""

    port: int

    def query(self, sql: str) -> TrinoRows:
        """All rows; raises TrinoError."""
        address = f"http://{LOOPBACK}:{self.port}/v1/statement"
        answer = _answer(Request(address, sql.encode(), _USER))
        names: tuple[str, ...] = ()
        rows: list[list[Any]] = []
        while True:
            if "error" in answer:
                raise TrinoError(answer["error"]["message"])
            names = tuple(each["name"] for each in answer.get("columns", ())) or names
            rows += answer.get("data", ())
            if "nextUri" not in answer:
                return TrinoRows(names, rows)
            answer = _answer(Request(answer["nextUri"], headers=_USER))  # noqa: S310 - the same


def _answer(asked: Request) -> dict[str, Any]:
    with urlopen(asked, timeout=PATIENCE_SECONDS) as reply:  # noqa: S310 - our own server
        found: dict[str, Any] = json.load(reply)
        return found


@contextmanager
def trino(catalog: RestCatalog, store: ObjectStore) -> Iterator[Trino]:
    """A server that reads the tables of this catalog."""
    assert trino_java().is_file(), "Trino was not fetched: python -m tools.deploy.fetch_trino"
    with workspace("trino", folder=None, keep=False) as space:
        _write_properties(
            space.subfolder("catalog") / "lake.properties",
            {
                "connector.name": "iceberg",
                "iceberg.catalog.type": "rest",
                "iceberg.rest-catalog.uri": catalog.uri,
                "fs.native-s3.enabled": "true",
                "s3.endpoint": store.endpoint,
                "s3.region": store.region,
                "s3.path-style-access": "true",
                "s3.aws-access-key": store.access_key,
                "s3.aws-secret-key": store.secret_key,
            },
        )
        service, (port,) = start_on_free_ports(lambda ports: _service(space, ports), count=1)
        try:
            yield Trino(port=port, log=space.log, service=service)
        finally:
            service.stop()


def _service(space: Workspace, ports: tuple[int, ...]) -> Service:
    (port,) = ports
    settings = space.folder / "config.properties"
    _write_properties(
        settings,
        {
            "coordinator": "true",
            "node-scheduler.include-coordinator": "true",
            "discovery.uri": f"http://{LOOPBACK}:{port}",
            "http-server.http.port": str(port),
            "node.internal-address": LOOPBACK,
            "node.bind-ip": LOOPBACK,
            "query.max-memory": "400MB",
            "query.max-memory-per-node": "400MB",
            "memory.heap-headroom-per-node": "300MB",
            "catalog.config-dir": str(space.folder / "catalog"),
            "plugin.dir": str(trino_folder() / "plugin"),
        },
    )
    node = {
        "node.environment": "tests",
        "node.id": "tests",
        "node.data-dir": str(space.subfolder("data")),
        "config": str(settings),
        "java.io.tmpdir": str(space.subfolder("tmp")),
    }
    launch = Launch(
        name="trino",
        command=(
            *(str(trino_java()), *_JVM_OPTIONS),
            *(f"-D{name}={value}" for name, value in node.items()),
            *("-cp", f"{trino_folder()}/lib/*", "io.trino.server.TrinoServer"),
        ),
        folder=space.folder,
        log=space.log,
        environment=space.environment(),
        discard=space.discard,
    )
    return Service(launch, lambda _: _is_ready(port))


def _is_ready(port: int) -> bool:
    return request(port, "GET", "/v1/info").field("starting") is False


def _write_properties(file: Path, properties: Mapping[str, str]) -> None:
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))


def from_json(value: Any, type_: Type) -> Any:
    """A value of Trino's JSON as Python has it."""
    if value is None:
        return None
    match type_:
        case Struct(fields):
            members = zip(fields, value, strict=True)
            return {each.name: from_json(inner, each.type) for each, inner in members}
        case List(element):
            return [from_json(each, element.type) for each in value]
        case Map(key, item):
            pairs = value.items()
            return [(from_json(one, key.type), from_json(other, item.type)) for one, other in pairs]
        case _:
            return _scalar(value, type_)


def _scalar(value: Any, type_: Type) -> Any:
    """Numbers that are none, and infinite ones, stay words: the comparison makes floats of them."""
    match type_:
        case Decimal():
            return DecimalValue(value)
        case Fixed() | Primitive.BINARY:
            return b64decode(value)
        case Primitive.TIMESTAMP:
            return datetime.fromisoformat(value)
        case Primitive.TIMESTAMPTZ:
            return datetime.fromisoformat(value.removesuffix(" UTC")).replace(tzinfo=UTC)
        case _:
            return value
