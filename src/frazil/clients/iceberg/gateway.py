"""Iceberg's Java classes through the Py4J gateway.

Resolving a package path costs milliseconds at every step, so classes are cached, and values cross
the gateway as one JSON text where possible.
"""

from __future__ import annotations

import json
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

# A Java object behind the gateway; Python knows no type for it.
JavaObject = Any

_ICEBERG = "org.apache.iceberg"
_FILES_AT_ONCE = 5_000
# Iceberg's shaded copy of Jackson; Spark's is another class.
_JSON_NODE = f"{_ICEBERG}.shaded.com.fasterxml.jackson.databind.JsonNode"


class FileIntake(Enum):
    """A method of an update that takes one file: its interface, its name and what it takes."""

    APPEND = ("AppendFiles", "appendFile", "DataFile")
    OVERWRITE = ("OverwriteFiles", "addFile", "DataFile")
    ADD_ROWS = ("RowDelta", "addRows", "DataFile")
    ADD_DELETES = ("RowDelta", "addDeletes", "DeleteFile")
    REMOVE_ROWS = ("RowDelta", "removeRows", "DataFile")
    REMOVE_DELETES = ("RowDelta", "removeDeletes", "DeleteFile")
    ADD_REWRITTEN = ("RewriteFiles", "addFile", "DataFile")
    ADD_REWRITTEN_DELETES = ("RewriteFiles", "addFile", "DeleteFile")
    REPLACE = ("RewriteFiles", "deleteFile", "DataFile")
    REPLACE_DELETES = ("RewriteFiles", "deleteFile", "DeleteFile")
    REMOVE = ("DeleteFiles", "deleteFile", "DataFile")


# What takes added rows, added deletes, removed rows and removed deletes.
ROW_DELTA = (
    FileIntake.ADD_ROWS,
    FileIntake.ADD_DELETES,
    FileIntake.REMOVE_ROWS,
    FileIntake.REMOVE_DELETES,
)
REWRITE = (
    FileIntake.ADD_REWRITTEN,
    FileIntake.ADD_REWRITTEN_DELETES,
    FileIntake.REPLACE,
    FileIntake.REPLACE_DELETES,
)


class IcebergGateway:
    """Access to Iceberg in the driver's JVM; belongs to one session and is not picklable."""

    def __init__(self, session: SparkSession) -> None:
        self.session = session
        # The gateway has no public accessor.
        gateway: JavaObject = session.sparkContext._gateway  # noqa: SLF001
        self._gateway = gateway
        self._root: JavaObject = self._gateway.jvm.org.apache.iceberg
        self._classes: dict[str, JavaObject] = {}
        self._methods: dict[FileIntake, JavaObject] = {}

    # Looked up once each.
    _spark_util = cached_property(lambda self: self._root.spark.Spark3Util)
    table_metadata = cached_property(lambda self: self._root.TableMetadata)
    metadata_parser = cached_property(lambda self: self._root.TableMetadataParser)
    snapshot_parser = cached_property(lambda self: self._root.SnapshotParser)
    # The files a snapshot added and removed.
    snapshot_changes = cached_property(lambda self: self._root.SnapshotChanges)
    _actions = cached_property(lambda self: self._root.spark.actions.SparkActions)
    _catalog_util = cached_property(lambda self: self._root.CatalogUtil)
    statistics_file = cached_property(lambda self: self._root.GenericStatisticsFile)
    expressions = cached_property(lambda self: self._root.expressions.Expressions)
    schema_parser = cached_property(lambda self: self._root.SchemaParser)
    spec_parser = cached_property(lambda self: self._root.PartitionSpecParser)
    sort_order_parser = cached_property(lambda self: self._root.SortOrderParser)
    _java = cached_property(lambda self: self._gateway.jvm.java.lang)
    _handles = cached_property(lambda self: self._java.invoke.MethodHandles)
    _mapper = cached_property(lambda self: self._root.util.JsonUtil.mapper())

    @cached_property
    def _parse_file(self) -> JavaObject:
        """``ContentFileParser.fromJson``, from a node and the partition specs."""
        type_ = self._java.invoke.MethodType.methodType(
            self._class(f"{_ICEBERG}.ContentFile"),
            self._class(_JSON_NODE),
            self._array("Class", [self._class("java.util.Map")]),
        )
        parser = self._class(f"{_ICEBERG}.ContentFileParser")
        return self._handles.publicLookup().findStatic(parser, "fromJson", type_)

    def _class(self, name: str) -> JavaObject:
        if name not in self._classes:
            loader = self._java.Thread.currentThread().getContextClassLoader()
            self._classes[name] = self._java.Class.forName(name, True, loader)  # noqa: FBT003
        return self._classes[name]

    def _method(self, intake: FileIntake) -> JavaObject:
        if intake not in self._methods:
            owner, method, kind = intake.value
            class_ = self._class(f"{_ICEBERG}.{owner}")
            # Such methods return the update they belong to.
            taking = self._class(f"{_ICEBERG}.{kind}")
            type_ = self._java.invoke.MethodType.methodType(class_, taking)
            lookup = self._handles.publicLookup()
            self._methods[intake] = lookup.findVirtual(class_, method, type_)
        return self._methods[intake]

    def _array(self, kind: str, values: Sequence[JavaObject]) -> JavaObject:
        array = self._gateway.new_array(getattr(self._java, kind), len(values))
        for at, value in enumerate(values):
            array[at] = value
        return array

    def load_catalog(self, name: str) -> JavaObject:
        """The Iceberg catalog with this name in Spark; callable from any thread."""
        session = self.session._jsparkSession  # noqa: SLF001
        before = session.getActiveSession()
        # Catalogs use the settings of the thread's session, and a new thread has none.
        session.setActiveSession(session)
        try:
            return self._spark_util.loadIcebergCatalog(session, name)
        finally:
            # Restore the session of the caller's thread.
            if before.isDefined():
                session.setActiveSession(before.get())
            else:
                session.clearActiveSession()

    def has_catalog(self, name: str) -> bool:
        """Whether the session has loaded this catalog."""
        manager = self.session._jsparkSession.sessionState().catalogManager()  # noqa: SLF001
        no_pattern = self._gateway.jvm.scala.Option.empty()
        return bool(manager.listCatalogs(no_pattern).contains(name))

    def identifier(self, namespace: Sequence[str], table: str) -> JavaObject:
        """``TableIdentifier``."""
        space = self._root.catalog.Namespace.of(self._array("String", namespace))
        return self._root.catalog.TableIdentifier.of(space, table)

    def apply_files(
        self, update: JavaObject, intake: FileIntake, descriptors: Sequence[str], specs: JavaObject
    ) -> None:
        """Pass data or delete files to an update, in a few gateway calls however many they are.

        Java parses each description and passes it on itself: a call per file would take three
        round trips, and a merge may touch thousands.
        """
        if not descriptors:
            return
        handles = self._handles
        parse = handles.insertArguments(self._parse_file, 1, self._array("Object", [specs]))
        take = self._method(intake).bindTo(update)
        any_file = self._java.invoke.MethodType.methodType(
            self._java.Void.TYPE, self._class(f"{_ICEBERG}.ContentFile")
        )
        pass_on = handles.filterReturnValue(parse, take.asType(any_file))
        consumer = self._class("java.util.function.Consumer")
        taker = self._java.invoke.MethodHandleProxies.asInterfaceInstance(consumer, pass_on)
        # In chunks: the text of a hundred thousand files would take much of the driver's memory.
        for first in range(0, len(descriptors), _FILES_AT_ONCE):
            some = descriptors[first : first + _FILES_AT_ONCE]
            self._mapper.readTree(f"[{','.join(some)}]").forEach(taker)

    def rewrite_manifests(self, table: JavaObject, summary: Mapping[str, str]) -> int:
        """Write the manifests of a table again by a Spark job; returns how many were replaced."""
        action = self._actions.get(self.session._jsparkSession).rewriteManifests(table)  # noqa: SLF001
        for key, value in summary.items():
            action.snapshotProperty(key, value)
        return int(action.execute().rewrittenManifests().spliterator().getExactSizeIfKnown())

    def remove_files(self, io: JavaObject, locations: JavaObject) -> None:
        """Remove files, all of one kind or not, in as few requests as the store allows."""
        self._catalog_util.deleteFiles(io, locations, "expired", True)  # noqa: FBT003

    def text_list(self, texts: Sequence[str]) -> JavaObject:
        """A Java list of texts, in one gateway call."""
        return self._mapper.readValue(json.dumps(list(texts)), self._class("java.util.ArrayList"))

    _lists = cached_property(lambda self: self._root.relocated.com.google.common.collect.Lists)

    def gather(self, tasks: JavaObject) -> JavaObject:
        """The result of a scan as a list."""
        return self._lists.newArrayList(tasks)

    def describe_tasks(self, found: JavaObject, specs: JavaObject) -> str:
        """A gathered scan as JSON of Iceberg's REST protocol: data files and their deletes.

        One gateway call instead of a dozen per file: 10,000 files in one second.
        """
        responses = self._root.rest.responses
        builder = responses.PlanTableScanResponse.builder(specs).withFileScanTasks(found)
        response = builder.withPlanStatus(self._root.rest.PlanStatus.COMPLETED).build()
        return str(responses.PlanTableScanResponseParser.toJson(response))

    def data_sequences(self, found: JavaObject) -> list[int]:
        """The data sequence numbers of a gathered scan's files, which its JSON does not have."""
        task, file = f"{_ICEBERG}.ContentScanTask", self._class(f"{_ICEBERG}.ContentFile")
        lookup, type_of = self._handles.publicLookup(), self._java.invoke.MethodType.methodType
        file_of = lookup.findVirtual(self._class(task), "file", type_of(file))
        number = type_of(self._class("java.lang.Long"))
        number_of = lookup.findVirtual(file, "dataSequenceNumber", number)
        any_object = self._class("java.lang.Object")
        handle = self._handles.filterReturnValue(file_of, number_of)
        handle = handle.asType(type_of(any_object, self._array("Class", [any_object])))
        function = self._class(f"{_ICEBERG}.relocated.com.google.common.base.Function")
        mapping = self._java.invoke.MethodHandleProxies.asInterfaceInstance(function, handle)
        # Files of format version 1 have none.
        return [each or 0 for each in self.to_json(self._lists.transform(found, mapping))]

    def collector(self) -> tuple[JavaObject, JavaObject]:
        """A Java list, and a consumer that puts everything it is given into it."""
        gathered = self._lists.newArrayList()
        any_object = self._class("java.lang.Object")
        type_of = self._java.invoke.MethodType.methodType
        taking = self._array("Class", [])
        add = self._handles.publicLookup().findVirtual(
            self._class("java.util.ArrayList"),
            "add",
            type_of(self._class_of_boolean, any_object, taking),
        )
        bound = add.bindTo(gathered)
        consumer = self._class("java.util.function.Consumer")
        return gathered, self._java.invoke.MethodHandleProxies.asInterfaceInstance(consumer, bound)

    @property
    def _class_of_boolean(self) -> JavaObject:
        return self._java.Boolean.TYPE

    def storage_credentials(self, io: JavaObject) -> tuple[tuple[str, dict[str, str]], ...]:
        """Prefixes of locations and what the catalog vended for them; not in ``properties()``."""
        if not self._class(f"{_ICEBERG}.io.SupportsStorageCredentials").isInstance(io):
            return ()
        return tuple((str(each.prefix()), self.to_json(each.config())) for each in io.credentials())

    def to_json(self, value: JavaObject) -> Any:  # noqa: ANN401 - whatever the JSON holds
        """A Java map, list or number as Python values, in one gateway call."""
        return json.loads(self._mapper.writeValueAsString(value))
