"""A buffer that is captured: events go in, changelogs and mirrors come out.

What tables hold is read by PyIceberg; what they must hold is what the writer of the events did.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
from pyiceberg.table import StaticTable

from frazil.clients.iceberg.lake import Lake
from frazil.clients.spark.session import attach_session
from frazil.config import load_config
from frazil.merge.merger import Merger
from frazil.model.table_name import parse_table_name
from frazil.pipeline.loops.loop import Ending
from frazil.pipeline.tables.merge_settings import load_merges
from tests.support.ingest.once import IngestOnce

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.config import Config
    from frazil.demo.services import ObjectStore, RestCatalog
    from frazil.ingest.report import BatchReport
    from frazil.model.table_name import TableName
    from tests.support.buffer.tables import Buffer

Row = dict[str, Any]
COPY = """
    copy philotes.cdc_events (
        source_id, schema_name, table_name, operation, lsn, key_columns, before_data, after_data,
        event_time
    ) from stdin
"""


@dataclass(frozen=True, kw_only=True)
class Written:
    """An event as its writer puts it there; documents are JSON text, or what becomes it."""

    table: str
    operation: str
    lsn: str
    after: object = None
    before: object = None
    key: object = ("id",)
    time: str = "2026-01-02 03:04:05.000006+00"

    def fields(self, source_id: str, schema: str) -> tuple[str | None, ...]:
        documents = (self.key, self.before, self.after)
        texts = [
            None if it is None else it if isinstance(it, str) else json.dumps(it)
            for it in documents
        ]
        return (source_id, schema, self.table, self.operation, self.lsn, *texts, self.time)


@dataclass
class CapturedBuffer:
    """One pipeline over some sources of a buffer, and the names of its tables."""

    spark: SparkSession
    buffer: Buffer
    store: ObjectStore
    folder: Path
    document: dict[str, Any]
    schema: str
    source_id: str
    reports: list[BatchReport] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)

    @property
    def config(self) -> Config:
        path = self.folder / f"{self.document['pipeline']}.yaml"
        path.write_text(json.dumps(self.document, ensure_ascii=False))
        return load_config(path, environ={}).config

    @property
    def lake(self) -> Lake:
        config = self.config
        return Lake(attach_session(self.spark, config), config.catalog.name)

    def write(self, events: Iterable[Written]) -> None:
        """In one transaction, so that all of them have the same created_at."""
        with (
            psycopg.connect(self.buffer.database.dsn.get_secret_value()) as connection,
            connection.cursor() as cursor,
            cursor.copy(COPY) as copy,
        ):
            for each in events:
                copy.write_row(each.fields(self.source_id, self.schema))

    def ingest(self) -> list[BatchReport]:
        """All that is there now, and nothing is wrong with it."""
        assert self.ingest_once() is Ending.DONE, [*self.failures, *self.reports]
        return self.reports

    def ingest_once(self) -> Ending:
        """As ``frazil ingest --once`` does it in a new process."""
        once = IngestOnce()
        self.reports, self.failures = once.reports, once.failures
        return once.run(self.spark, self.config)

    def merge(self) -> None:
        """All mirrors."""
        config = self.config
        for settings in load_merges(self.lake, config, ()).values():
            Merger(self.spark, self.lake, settings).merge()

    def name(self, table: str) -> TableName:
        return parse_table_name(table, catalog=str(self.document["catalog"]["name"]))

    def changelog(self, table: str) -> list[Row]:
        return self._rows(f"cdc.{self.schema}_{table}")

    def mirror(self, table: str) -> dict[Any, Row]:
        rows = self._rows(f"{self.schema}.{table}")
        found = {row["id"]: row for row in rows}
        assert len(found) == len(rows)
        return found

    def _rows(self, table: str) -> list[Row]:
        location = self.lake.open(self.name(table)).load_metadata_location()
        properties = self.store.io_properties()
        return list(StaticTable.from_metadata(location, properties).scan().to_arrow().to_pylist())

    def pending(self) -> int:
        return self.buffer.events(f"processed_at is null and source_id = '{self.source_id}'")

    def claims(self) -> int:
        pipeline = self.document["pipeline"]
        found = self.buffer.ask(
            f"select count(*) from frazil_buffer.claims where pipeline = '{pipeline}'"
        )
        assert isinstance(found, int)
        return found


def captured_buffer(
    spark: SparkSession,
    buffer: Buffer,
    catalog: RestCatalog,
    store: ObjectStore,
    folder: Path,
    **source: object,
) -> CapturedBuffer:
    """A pipeline over one source of a buffer; nothing was read yet."""
    suffix = uuid4().hex[:8]
    document: dict[str, Any] = {
        "pipeline": f"b_{suffix}",
        "catalog": {
            "name": f"cat_{suffix}",
            "kind": "rest",
            "uri": catalog.uri,
            "warehouse": catalog.warehouse,
        },
        "storage": {
            "s3": {
                "endpoint": store.endpoint,
                "region": store.region,
                "path_style": True,
                "access_key_id": store.access_key,
                "secret_access_key": store.secret_key,
            }
        },
        "mirror": {"index": {"cache_dir": f"{folder}/cache_{suffix}"}},
        "telemetry": {"listen": "127.0.0.1:0"},
        "retry": {"attempts": 2, "base": "50ms", "max": "100ms"},
        "source": {
            "kind": "buffer",
            "dsn": buffer.database.dsn.get_secret_value(),
            "source_ids": [f"source-{suffix}"],
            "poll": "100ms",
            **source,
        },
    }
    return CapturedBuffer(
        spark, buffer, store, folder, document, f"shop{suffix}", f"source-{suffix}"
    )
