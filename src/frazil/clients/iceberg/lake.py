"""Namespaces and tables of one catalog: open, create, drop."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from frazil.clients.iceberg.commit.metadata_log import KEPT_VERSIONS, KEPT_VERSIONS_PROPERTY
from frazil.clients.iceberg.file_access import is_vended, load_access
from frazil.clients.iceberg.gateway import IcebergGateway
from frazil.clients.iceberg.table import LakeTable
from frazil.clients.java_errors import java_classes, translate, translated
from frazil.clients.spark.pinned_session import pinned_session
from frazil.codec.iceberg_json import schema_to_json, sort_order_to_json, spec_to_json
from frazil.errors import TableNotFoundError
from frazil.model.schema.partitioning import UNPARTITIONED, UNSORTED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from frazil.clients.iceberg.gateway import JavaObject
    from frazil.model.schema.partitioning import PartitionSpec, SortOrder
    from frazil.model.schema.types import Schema
    from frazil.model.table_name import TableName

_ALREADY_EXISTS = "org.apache.iceberg.exceptions.AlreadyExistsException"

# Bounded, so that a table with a commit every few seconds does not fill its folder; enough to find
# expired snapshots in earlier versions.
BOUNDED_METADATA = MappingProxyType(
    {
        "write.metadata.delete-after-commit.enabled": "true",
        KEPT_VERSIONS_PROPERTY: str(KEPT_VERSIONS),
    }
)
# Format version 3 has deletion vectors; position deletes must work on 2.
NEWEST_FORMAT = 3
_WITH_FILES = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDefinition:
    """The definition of a new table."""

    schema: Schema
    spec: PartitionSpec = UNPARTITIONED
    sort_order: SortOrder = UNSORTED
    format_version: int = NEWEST_FORMAT
    properties: Mapping[str, str] = field(default_factory=lambda: BOUNDED_METADATA)


class Lake:
    """Tables of one catalog, through the caller's session.

    Everything is read in a child session with pinned settings.
    """

    def __init__(self, session: SparkSession, catalog: str) -> None:
        self._session = pinned_session(session)
        self._gateway = IcebergGateway(self._session)
        self._callers = None if self._session is session else IcebergGateway(session)
        self._name = catalog
        with translated(catalog, "opening the catalog"):
            self._catalog = self._gateway.load_catalog(catalog)

    def ensure_namespace(self, name: TableName) -> None:
        """Create the table's namespace if it does not exist."""
        with translated(str(name), "creating the namespace"):
            self._session.sql(f"create namespace if not exists {name.quoted_namespace}")

    def has_namespace(self, name: TableName) -> bool:
        """Whether the table's namespace exists."""
        try:
            with translated(str(name), "checking the namespace"):
                self._session.sql(f"describe namespace {name.quoted_namespace}").collect()
        except TableNotFoundError:
            return False
        return True

    def drop_namespace(self, name: TableName) -> None:
        """Remove the table's namespace, which must be empty."""
        with translated(str(name), "removing the namespace"):
            self._session.sql(f"drop namespace {name.quoted_namespace}")

    def drop_table(self, name: TableName) -> None:
        """Remove a table with all its files."""
        with translated(str(name), "removing the table"):
            identifier = self._gateway.identifier(name.namespace, name.table)
            self._catalog.dropTable(identifier, _WITH_FILES)

    def open(self, name: TableName) -> LakeTable:
        """A table that exists; TableNotFoundError otherwise."""
        with translated(str(name), "opening the table"):
            identifier = self._gateway.identifier(name.namespace, name.table)
            table = self._catalog.loadTable(identifier)
            try:
                if is_vended(load_access(self._gateway, table)):
                    # Refreshing a table that was kept keeps its credentials.
                    table = self._reload(identifier)
                else:
                    table.refresh()
            except Py4JError:
                # Dropped or recreated by another process: the cached object is stale.
                table = self._reload(identifier)
            return LakeTable(
                self._gateway,
                table,
                name,
                reload=lambda: self._reload(identifier),
                invalidate=lambda: self._invalidate(identifier),
            )

    def ensure_table(self, name: TableName, definition: TableDefinition) -> LakeTable:
        """The existing table, or a new one as defined; safe with concurrent processes."""
        try:
            return self.open(name)
        except TableNotFoundError:
            self.ensure_namespace(name)
        try:
            self._create(name, definition)
        except Py4JError as error:
            if _ALREADY_EXISTS not in java_classes(error):
                raise translate(error, table=str(name), doing="creating the table") from error
        return self.open(name)

    def _invalidate(self, identifier: JavaObject) -> None:
        """Drop the table from the caches of both sessions, if they have loaded the catalog."""
        self._catalog.invalidateTable(identifier)
        callers = self._callers
        if callers is not None and callers.has_catalog(self._name):
            callers.load_catalog(self._name).invalidateTable(identifier)

    def _reload(self, identifier: JavaObject) -> JavaObject:
        self._catalog.invalidateTable(identifier)
        return self._catalog.loadTable(identifier)

    def _create(self, name: TableName, definition: TableDefinition) -> None:
        definition.spec.check(definition.schema)
        gateway = self._gateway
        schema = gateway.schema_parser.fromJson(schema_to_json(definition.schema))
        spec = gateway.spec_parser.fromJson(schema, spec_to_json(definition.spec))
        order = gateway.sort_order_parser.fromJson(
            schema, sort_order_to_json(definition.sort_order)
        )
        identifier = gateway.identifier(name.namespace, name.table)
        builder = self._catalog.buildTable(identifier, schema)
        builder.withPartitionSpec(spec).withSortOrder(order)
        properties = {**definition.properties, "format-version": str(definition.format_version)}
        builder.withProperties(properties).create()
