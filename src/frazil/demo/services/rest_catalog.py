"""Iceberg's own REST catalog server, over SQLite, in a small JVM."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from frazil.clients.spark.jars import AWS_BUNDLE, REST_SERVER, ensure_jars, spark_jar_folder
from frazil.clients.spark.java import find_java
from frazil.demo.services.ports import LOOPBACK, request, start_on_free_ports
from frazil.demo.services.process import Launch, RunningService, Service
from frazil.demo.services.workspace import Workspace, workspace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from frazil.demo.services.seaweedfs import ObjectStore

_JETTY = "org.eclipse.jetty"
_ICEBERG = "org.apache.iceberg"

# Jetty takes its grammar from its own jar by this name, and refuses a document without one.
_PROLOGUE = b"""<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE Configure PUBLIC "-//Jetty//Configure//EN" "configure_10_0.dtd">
"""

# What the server needs besides its own jars, by the start of the file names in Spark's folder.
_SPARK_JARS = (
    "RoaringBitmap-",
    "aircompressor-",
    "avro-1",
    "commons-codec-",
    "commons-compress-",
    "commons-io-",
    "commons-lang3-",
    "commons-logging-",
    "hadoop-client-",
    "jackson-annotations-",
    # Not jackson-core-asl, the version 1 of the same name.
    "jackson-core-2",
    "jackson-databind-",
    "jcl-over-slf4j-",
    "log4j-",
    "slf4j-api-",
    "zstd-jni-",
)

_JVM_OPTIONS = (
    # A heavy day of tests needs 330 MB in all; the simple collector and compiler start fastest.
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    # Otherwise its sockets are of the other family, and named ::ffff:127.0.0.1.
    "-Djava.net.preferIPv4Stack=true",
    # Leaves no file in the system's temp folder.
    "-XX:-UsePerfData",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestCatalog(RunningService):
    """A running catalog; it needs no credentials, and clients bring their own for the files."""

    uri: str
    warehouse: str


@contextmanager
def rest_catalog(
    *,
    warehouse: str | None = None,
    s3: ObjectStore | None = None,
    folder: Path | None = None,
    keep: bool = False,
) -> Iterator[RestCatalog]:
    """A REST catalog on a free loopback port.

    The warehouse is a folder next to the catalog's database, or ``warehouse`` in the plain bucket
    if ``s3`` is given, unless it is named. With ``folder`` the data live there and are used again
    the next time; otherwise they are removed at the end unless ``keep``. The first use on a
    machine downloads jars.
    """
    with workspace("rest-catalog", folder=folder, keep=keep) as space:
        location = warehouse or _default_warehouse(space, s3)
        maker = _Maker(space=space, warehouse=location, s3=s3)
        service, (port,) = start_on_free_ports(maker.service, count=1)
        try:
            yield RestCatalog(
                uri=f"http://{LOOPBACK}:{port}", warehouse=location, log=space.log, service=service
            )
        finally:
            service.stop()


def _default_warehouse(space: Workspace, s3: ObjectStore | None) -> str:
    if s3 is not None:
        return f"s3://{s3.bucket}/warehouse"
    return space.subfolder("warehouse").as_uri()


@dataclass(frozen=True, slots=True)
class _Maker:
    space: Workspace
    warehouse: str
    s3: ObjectStore | None

    @property
    def _mark(self) -> Path:
        """A file that the server makes once it listens: proof that it is ours."""
        return self.space.folder / "listening"

    def service(self, ports: tuple[int, ...]) -> Service:
        """The server on this port."""
        (port,) = ports
        document = assembly(
            host=LOOPBACK, port=port, properties=self._properties(), listening=self._mark
        )
        java = find_java()
        launch = Launch(
            name="rest catalog",
            command=(
                *(str(java.executable), *java.options, *_JVM_OPTIONS),
                f"-Djava.io.tmpdir={self.space.subfolder('tmp')}",
                *("-cp", self._class_path(), "org.eclipse.jetty.xml.XmlConfiguration"),
                str(self.space.private_file("server.xml", document)),
            ),
            folder=self.space.folder,
            log=self.space.log,
            environment=self._environment(),
            leftovers=(self._mark,),
            discard=self.space.discard,
        )
        return Service(launch, lambda _: self._is_ready(port))

    def _properties(self) -> dict[str, str]:
        database = self.space.folder / "catalog.db"
        properties = {
            "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            # Writers wait for each other instead of failing; no test holds a lock this long.
            "uri": f"jdbc:sqlite:{database}?busy_timeout=30000",
            "jdbc.schema-version": "V1",
            "warehouse": self.warehouse,
        }
        if self.s3 is not None:
            properties |= {
                "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
                "s3.endpoint": self.s3.endpoint,
                "s3.path-style-access": "true",
                "client.region": self.s3.region,
            }
        return properties

    def _environment(self) -> dict[str, str]:
        environment = self.space.environment()
        if self.s3 is not None:
            environment |= {
                "AWS_ACCESS_KEY_ID": self.s3.access_key,
                "AWS_SECRET_ACCESS_KEY": self.s3.secret_key,
                # Otherwise the SDK queries a cloud's metadata address that is not there.
                "AWS_EC2_METADATA_DISABLED": "true",
            }
        return environment

    def _class_path(self) -> str:
        own = ensure_jars(REST_SERVER, AWS_BUNDLE) if self.s3 else ensure_jars(REST_SERVER)
        borrowed = sorted(
            path for path in spark_jar_folder().glob("*.jar") if path.name.startswith(_SPARK_JARS)
        )
        return os.pathsep.join(str(path) for path in (*own, *borrowed))

    def _is_ready(self, port: int) -> bool:
        """Whether it lists namespaces, which it reads from the database."""
        return self._mark.exists() and request(port, "GET", "/v1/namespaces").ok


def assembly(*, host: str, port: int, properties: Mapping[str, str], listening: Path) -> bytes:
    """A server for the catalog with these properties; makes the file ``listening`` when it is."""
    server = ET.Element("Configure", {"id": "Server", "class": f"{_JETTY}.server.Server"})
    bag = _new(server, "java.util.HashMap", id="properties")
    for name, value in properties.items():
        _call(bag, "put", name, value)
    catalog = ET.SubElement(
        server,
        "Call",
        {"id": "catalog", "class": f"{_ICEBERG}.CatalogUtil", "name": "buildIcebergCatalog"},
    )
    _argument(catalog, "rest_backend")
    _reference(_argument(catalog), "properties")
    _new(_argument(catalog), "org.apache.hadoop.conf.Configuration")
    connector = _new(_argument(_call(server, "addConnector")), f"{_JETTY}.server.ServerConnector")
    _reference(_argument(connector), "Server")
    _set(connector, "host", host)
    _set(connector, "port", str(port))
    _handle(_set(server, "handler"))
    _call(server, "start")
    mark = _new(server, "java.io.File")
    _argument(mark, str(listening))
    _call(mark, "createNewFile")
    document: bytes = ET.tostring(server, encoding="utf-8")
    return _PROLOGUE + document


def _handle(parent: ET.Element) -> None:
    context = _new(parent, f"{_JETTY}.ee10.servlet.ServletContextHandler")
    _set(context, "contextPath", "/")
    servlet = _call(context, "addServlet")
    holder = _new(_argument(servlet), f"{_JETTY}.ee10.servlet.ServletHolder")
    wrapped = _new(_argument(holder), f"{_ICEBERG}.rest.RESTCatalogServlet")
    adapter = _new(_argument(wrapped), f"{_ICEBERG}.rest.RESTCatalogAdapter")
    _reference(_argument(adapter), "catalog")
    _argument(servlet, "/*")


def _new(parent: ET.Element, java_class: str, **attributes: str) -> ET.Element:
    return ET.SubElement(parent, "New", {"class": java_class, **attributes})


def _call(parent: ET.Element, name: str, *arguments: str) -> ET.Element:
    call = ET.SubElement(parent, "Call", name=name)
    for argument in arguments:
        _argument(call, argument)
    return call


def _argument(parent: ET.Element, text: str | None = None) -> ET.Element:
    argument = ET.SubElement(parent, "Arg")
    argument.text = text
    return argument


def _set(parent: ET.Element, name: str, text: str | None = None) -> ET.Element:
    setting = ET.SubElement(parent, "Set", name=name)
    setting.text = text
    return setting


def _reference(parent: ET.Element, name: str) -> None:
    ET.SubElement(parent, "Ref", refid=name)
