"""Iceberg's Java classes, looked up once.

Walking a package path through the gateway costs milliseconds at every step, so classes are kept,
and whatever can be carried as one JSON text is.
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

# A Java object behind the gateway: it has no type that Python could check.
JavaObject = Any


class IcebergGateway:
    """The way to Iceberg inside the driver's JVM; belongs to one session and never leaves it."""

    def __init__(self, session: SparkSession) -> None:
        self.session = session
        # There is no public door to the gateway.
        gateway: JavaObject = session.sparkContext._gateway  # noqa: SLF001
        self._gateway = gateway
        self._root: JavaObject = self._gateway.jvm.org.apache.iceberg

    @cached_property
    def _spark_util(self) -> JavaObject:
        return self._root.spark.Spark3Util

    @cached_property
    def table_metadata(self) -> JavaObject:
        """``TableMetadata``: what a commit replaces."""
        return self._root.TableMetadata

    @cached_property
    def metadata_parser(self) -> JavaObject:
        """``TableMetadataParser``."""
        return self._root.TableMetadataParser

    @cached_property
    def snapshot_parser(self) -> JavaObject:
        """``SnapshotParser``."""
        return self._root.SnapshotParser

    @cached_property
    def snapshot_changes(self) -> JavaObject:
        """``SnapshotChanges``: the files a snapshot added and removed."""
        return self._root.SnapshotChanges

    @cached_property
    def statistics_file(self) -> JavaObject:
        """``GenericStatisticsFile``."""
        return self._root.GenericStatisticsFile

    @cached_property
    def expressions(self) -> JavaObject:
        """``Expressions``."""
        return self._root.expressions.Expressions

    @cached_property
    def schema_parser(self) -> JavaObject:
        """``SchemaParser``."""
        return self._root.SchemaParser

    @cached_property
    def spec_parser(self) -> JavaObject:
        """``PartitionSpecParser``."""
        return self._root.PartitionSpecParser

    @cached_property
    def sort_order_parser(self) -> JavaObject:
        """``SortOrderParser``."""
        return self._root.SortOrderParser

    @cached_property
    def _file_parser(self) -> JavaObject:
        return self._root.ContentFileParser

    @cached_property
    def _mapper(self) -> JavaObject:
        # Iceberg's own, shaded copy of Jackson; Spark's would be another class.
        return self._root.util.JsonUtil.mapper()

    def load_catalog(self, name: str) -> JavaObject:
        """The Iceberg catalog that Spark knows by this name; may be asked in any thread."""
        session = self.session._jsparkSession  # noqa: SLF001
        # Catalogs are made from the settings of the thread's session, and a new thread has none.
        session.setActiveSession(session)
        return self._spark_util.loadIcebergCatalog(session, name)

    def identifier(self, namespace: Sequence[str], table: str) -> JavaObject:
        """``TableIdentifier``."""
        levels = self._gateway.new_array(self._gateway.jvm.java.lang.String, len(namespace))
        for position, level in enumerate(namespace):
            levels[position] = level
        space = self._root.catalog.Namespace.of(levels)
        return self._root.catalog.TableIdentifier.of(space, table)

    def parse_files(self, descriptors: Sequence[str], specs: JavaObject) -> list[JavaObject]:
        """Data and delete files from their JSON; the texts cross the gateway as one."""
        if not descriptors:
            return []
        nodes = self._mapper.readTree(f"[{','.join(descriptors)}]")
        parse, node = self._file_parser.fromJson, nodes.get
        return [parse(node(position), specs) for position in range(len(descriptors))]

    def describe_tasks(self, tasks: JavaObject, specs: JavaObject) -> str:
        """What a scan found as the JSON of Iceberg's REST protocol: data files and their deletes.

        One crossing, where asking for each file takes a dozen: 10,000 files in one second.
        """
        found = self._root.relocated.com.google.common.collect.Lists.newArrayList(tasks)
        responses = self._root.rest.responses
        builder = responses.PlanTableScanResponse.builder(specs).withFileScanTasks(found)
        response = builder.withPlanStatus(self._root.rest.PlanStatus.COMPLETED).build()
        return str(responses.PlanTableScanResponseParser.toJson(response))

    def to_json(self, value: JavaObject) -> Any:  # noqa: ANN401 - whatever the JSON holds
        """A Java map, list or number as Python values, in one crossing."""
        return json.loads(self._mapper.writeValueAsString(value))
