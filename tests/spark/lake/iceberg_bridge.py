"""Iceberg's own Java behind py4j, for tests that compare with it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from frazil.clients.iceberg.write.write_target import plan_write_target
from frazil.codec.iceberg_json import (
    schema_from_json,
    schema_to_json,
    sort_order_from_json,
    spec_from_json,
    spec_to_json,
)
from frazil.model.schema.partitioning import UNPARTITIONED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import SparkSession

    from frazil.clients.iceberg.write.data_file import WrittenFile
    from frazil.clients.iceberg.write.write_target import WriteTarget
    from frazil.model.schema.partitioning import PartitionSpec
    from frazil.model.schema.types import Schema

METRICS = ("value-counts", "null-value-counts", "nan-value-counts", "lower-bounds", "upper-bounds")


@dataclass(frozen=True)
class Bridge:
    """One catalog of the session."""

    spark: SparkSession
    catalog: str
    io_properties: Mapping[str, str]

    @property
    def iceberg(self) -> Any:
        return self.spark._jvm.org.apache.iceberg  # type: ignore[union-attr]

    def create(
        self,
        name: str,
        schema: Schema,
        spec: PartitionSpec = UNPARTITIONED,
        *,
        version: int = 2,
        properties: Mapping[str, str] | None = None,
    ) -> IcebergTable:
        """A new table, by Iceberg's own parsers; it gives the fields ids of its own."""
        iceberg = self.iceberg
        util = iceberg.spark.Spark3Util
        # First: a catalog is loaded with the settings of the thread's session, which a statement
        # sets, and a test before this one may have left another session there.
        self.spark.sql(f"create namespace if not exists {self.catalog}.writer")
        catalog = util.loadIcebergCatalog(self.spark._jsparkSession, self.catalog)
        identifier = iceberg.catalog.TableIdentifier.parse(f"writer.{name}")
        java_schema = iceberg.SchemaParser.fromJson(schema_to_json(schema))
        java_spec = iceberg.PartitionSpecParser.fromJson(java_schema, spec_to_json(spec))
        made = {"format-version": str(version), **(properties or {})}
        catalog.createTable(identifier, java_schema, java_spec, made)
        return IcebergTable(self, f"{self.catalog}.writer.{name}")


@dataclass(frozen=True)
class IcebergTable:
    """A table as Java sees it."""

    bridge: Bridge
    name: str

    @property
    def java(self) -> Any:
        util = self.bridge.iceberg.spark.Spark3Util
        return util.loadIcebergTable(self.bridge.spark._jsparkSession, self.name)

    @property
    def schema(self) -> Schema:
        return schema_from_json(self.bridge.iceberg.SchemaParser.toJson(self.java.schema()))

    @property
    def metadata_location(self) -> str:
        location: str = self.java.operations().refresh().metadataFileLocation()
        return location

    def target(self, **changes: Any) -> WriteTarget:
        """What a task needs to write here."""
        java, iceberg = self.java, self.bridge.iceberg
        arguments: dict[str, Any] = {
            "table": self.name,
            "location": java.location(),
            "schema": self.schema,
            "spec": spec_from_json(iceberg.PartitionSpecParser.toJson(java.spec())),
            "sort_order": sort_order_from_json(iceberg.SortOrderParser.toJson(java.sortOrder())),
            "properties": dict(java.properties()),
            "io_properties": self.bridge.io_properties,
        }
        return plan_write_target(**(arguments | changes))

    def append(self, descriptors: Iterable[str]) -> None:
        """Commit files by their descriptors alone."""
        iceberg, java = self.bridge.iceberg, self.java
        mapper = iceberg.util.JsonUtil.mapper()
        append = java.newAppend()
        for each in descriptors:
            node = mapper.readTree(each)
            append.appendFile(iceberg.ContentFileParser.fromJson(node, java.specs()))
        append.commit()

    def files(self) -> list[dict[str, Any]]:
        """The descriptors of all live files, as Iceberg prints them."""
        parser, java = self.bridge.iceberg.ContentFileParser, self.java
        java.refresh()
        tasks = java.newScan().includeColumnStats().planFiles()
        specs, found, iterator = java.specs(), [], tasks.iterator()
        try:
            while iterator.hasNext():
                file = iterator.next().file()
                found.append(json.loads(parser.toJson(file, specs.get(file.specId()))))
        finally:
            tasks.close()
        return found

    def footer_metrics(self, file: WrittenFile) -> dict[str, Any]:
        """What Iceberg reads out of a file's footer, in the form of a descriptor."""
        iceberg, java = self.bridge.iceberg, self.java
        config = iceberg.MetricsConfig.forTable(java)
        source = java.io().newInputFile(file.location)
        metrics = iceberg.parquet.ParquetUtil.fileMetrics(source, config)
        spec = iceberg.PartitionSpec.unpartitioned()
        builder = iceberg.DataFiles.builder(spec).withPath(file.location).withFormat("parquet")
        built = builder.withFileSizeInBytes(file.size).withMetrics(metrics).build()
        found: dict[str, Any] = json.loads(iceberg.ContentFileParser.toJson(built, spec))
        return found

    def split_offsets(self, file: WrittenFile) -> list[int]:
        """Where Iceberg would cut a file of a folder."""
        hadoop = self.bridge.iceberg.shaded.org.apache.parquet.hadoop
        jvm = self.bridge.spark._jvm
        path = jvm.org.apache.hadoop.fs.Path(file.location)  # type: ignore[union-attr]
        configuration = self.bridge.spark._jsparkSession.sessionState().newHadoopConf()
        reader = hadoop.ParquetFileReader.open(
            hadoop.util.HadoopInputFile.fromPath(path, configuration)
        )
        try:
            offsets = self.bridge.iceberg.parquet.ParquetUtil.getSplitOffsets(reader.getFooter())
            return [int(each) for each in offsets]
        finally:
            reader.close()


def metrics_of(descriptor: Mapping[str, Any], *names: str) -> dict[str, dict[int, Any]]:
    """Each metric as a mapping from field id."""
    found = {}
    for name in names or METRICS:
        pairs = descriptor.get(name) or {"keys": [], "values": []}
        found[name] = dict(zip(pairs["keys"], pairs["values"], strict=True))
    return found
