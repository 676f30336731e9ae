"""Topics that are captured: segments go in, tables, changelogs and mirrors come out.

What tables hold is read by PyIceberg, and what they must hold is what was produced.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from frazil.changelog.table import ChangelogTable
from frazil.cli.verbs.plan import load_plans
from frazil.clients.iceberg.lake import Lake
from frazil.clients.spark.session import attach_session
from frazil.config import load_config
from frazil.ledger.dead_letters import DeadLetterTable
from frazil.merge.merger import Merger
from frazil.model.table_name import parse_table_name
from frazil.pipeline.configured_source import configured_source
from frazil.pipeline.letters.replay import build_replay
from frazil.pipeline.loops.loop import Ending
from frazil.pipeline.tables.captured_mirrors import dead_letters_name
from frazil.pipeline.tables.merge_settings import load_merges
from tests.support.ingest.once import IngestOnce
from tests.support.kafscale.broker import Broker
from tests.support.lake.other_readers import rows_by_pyiceberg

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.cli.results.plan_results import Planned
    from frazil.config import Config
    from frazil.demo.services import EtcdServer, ObjectStore
    from frazil.ingest.replay import ReplayReport
    from frazil.ingest.report import BatchReport
    from frazil.model.records.dead_letter import DeadLetter
    from frazil.model.table_name import TableName

Row = dict[str, Any]


@dataclass
class CapturedTopics:
    """One namespace of a bucket, one pipeline over its topics, and a catalog of its own."""

    spark: SparkSession
    broker: Broker
    folder: Path
    document: dict[str, Any]
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

    def ingest(self) -> list[BatchReport]:
        """All that is there now, and nothing is wrong with it."""
        assert self.ingest_once() is Ending.DONE, [*self.failures, *self.reports]
        return self.reports

    def ingest_once(self) -> Ending:
        """As ``frazil ingest --once`` does it in a new process."""
        once = IngestOnce()
        self.reports, self.failures = once.reports, once.failures
        return once.run(self.spark, self.config)

    def plan(self) -> dict[str, Planned]:
        """As ``frazil plan`` shows it, by topic."""
        config = self.config
        facts = configured_source(config).load_plan_facts()
        run, planned = load_plans(attach_session(self.spark, config), config, (), facts)
        assert run is not None
        assert run.preparation.problem is None
        return {each.table: each for each in planned}

    def merge(self) -> None:
        """All mirrors."""
        config = self.config
        for settings in load_merges(self.lake, config, ()).values():
            Merger(self.spark, self.lake, settings).merge()

    def name(self, table: str) -> TableName:
        return parse_table_name(table, catalog=str(self.document["catalog"]["name"]))

    def rows(self, table: str) -> list[Row]:
        """Of any table in the catalog."""
        lake_table = self.lake.open(self.name(table))
        return list(rows_by_pyiceberg(lake_table.load_metadata_location()).to_pylist())

    def dead_letters(self) -> list[Row]:
        name = dead_letters_name(self.config)
        table = self.lake.open(name)
        return list(rows_by_pyiceberg(table.load_metadata_location()).to_pylist())

    def letters(self) -> list[DeadLetter]:
        return list(self._letter_table().letters())

    def replay(self) -> ReplayReport:
        """All dead letters, as ``frazil dlq replay --all`` does it."""
        letters = self.letters()
        tables = {each.table for each in letters}
        return build_replay(self.lake, self.config, self._letter_table(), tables).replay(letters)

    def _letter_table(self) -> DeadLetterTable:
        return DeadLetterTable.open(self.lake, dead_letters_name(self.config))

    def offsets(self, table: str) -> Mapping[str, int]:
        """Of the table's marker."""
        marker = ChangelogTable.open(self.lake, self.name(table)).position()
        assert marker is not None
        assert not isinstance(marker.position, str)
        return marker.position


def captured_topics(
    spark: SparkSession,
    store: ObjectStore,
    folder: Path,
    *,
    topics: Sequence[Mapping[str, object]],
    etcd: EtcdServer | None = None,
    source: Mapping[str, object] | None = None,
    **sections: object,
) -> CapturedTopics:
    """A namespace of its own, and a pipeline that captures it; nothing was read yet."""
    suffix = uuid4().hex[:8]
    broker = Broker(store)
    offsets: dict[str, object] = {"backend": "none"}
    if etcd is not None:
        offsets = {"key_prefix": f"p-{suffix}", "lease_ttl": "10s"}
    document: dict[str, Any] = {
        "pipeline": f"k_{suffix}",
        "catalog": {
            "name": f"cat_{suffix}",
            "kind": "sql",
            "uri": f"sqlite:///{folder}/{suffix}.db",
            "warehouse": f"file://{folder}/{suffix}",
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
        "retry": {"attempts": 2, "base": "50ms", "max": "100ms"},
        **sections,
        "source": {
            "kind": "kafscale",
            "bucket": broker.bucket.name,
            "namespace": broker.namespace,
            "offsets": offsets,
            **({} if etcd is None else {"etcd": {"endpoints": [etcd.endpoint]}}),
            **(source or {}),
            "topics": [dict(each) for each in topics],
        },
    }
    return CapturedTopics(spark, broker, folder, document)
