"""The document from which Jetty assembles Iceberg's REST server."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_JETTY = "org.eclipse.jetty"
_ICEBERG = "org.apache.iceberg"

# Jetty takes its grammar from its own jar by this name, and refuses a document without one.
_PROLOGUE = b"""<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE Configure PUBLIC "-//Jetty//Configure//EN" "configure_10_0.dtd">
"""


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
