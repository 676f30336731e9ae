"""Ingest, merge and index over an object store that fails: runs end well or by name, and go on.

The store is a real one behind a proxy. After each fault the same work is done again, as the next
process would, and the mirror is what the source is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from frazil.clients.iceberg.lake import Lake
from frazil.clients.spark.session import attach_session
from frazil.config import load_config
from frazil.errors import FrazilError, LakeError
from frazil.ingest.ingester import Ingester
from frazil.ingest.settings import CaptureSettings, IngestSettings
from frazil.ledger.table import Ledger
from frazil.merge.merger import Merger
from frazil.merge.planning.settings import IndexSettings, MergeSettings
from frazil.model.schema.types import Primitive
from frazil.model.table_name import TableName
from frazil.sources.protocol import Limit
from frazil.testing.in_memory_database import DeleteRow, InMemoryDatabase, InsertRow, UpdateRow
from frazil.testing.in_memory_source import InMemorySource
from tests.support.faulty_proxy import Answer, CutReply, HttpProxy, LoseReply, Refuse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.demo.services import ObjectStore
    from tests.support.faulty_proxy import Fault, Match

pytestmark = [pytest.mark.spark, pytest.mark.services]

TABLE = "shop.users"
ROOMY = 1 << 30
FOR_EVER = 10_000

# The catalog's own retries are shortened: a test must not wait minutes for them.
DOCUMENT = """
pipeline: faults
catalog:
  name: {name}
  kind: sql
  uri: 'sqlite:///{folder}/c.db'
  warehouse: 's3://{bucket}/faults-{name}'
  properties: {{s3.retry.num-retries: '2', s3.retry.min-wait-ms: '50', s3.retry.max-wait-ms: '200'}}
storage:
  s3:
    endpoint: '{endpoint}'
    path_style: true
    access_key_id: '{key}'
    secret_access_key: '{secret}'
tables: [{{mirror: a.b, changelog: a.c, key: [id]}}]
"""


def error(status: int, code: str) -> Answer:
    """A refusal as S3 spells it."""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>no</Message></Error>"
    return Answer(status, body.encode(), {"Content-Type": "application/xml"})


SLOW_DOWN = error(503, "SlowDown")
EXPIRED = error(403, "ExpiredToken")
SKEWED = error(403, "RequestTimeTooSkewed")
DENIED = error(403, "AccessDenied")


def request_to(method: str, path: str) -> Match:
    """Requests of these methods whose path has this in it."""
    methods, pattern = re.compile(method), re.compile(path)
    return lambda verb, where, _: bool(methods.fullmatch(verb) and pattern.search(where))


CHANGES, ROWS = r"/users_changelog/data/", r"/users/data/"
LEDGER, INDEX, METADATA = r"/ledger/data/", r"\.stats|/_index/", r"\.avro|\.metadata\.json"
WRITES, READS = "PUT|POST", "GET"


@dataclass
class World:
    """A source, its changelog and its mirror; every step is one of a new process."""

    spark: SparkSession
    proxy: HttpProxy
    catalog: str
    folder: Path
    database: InMemoryDatabase = field(default_factory=InMemoryDatabase)
    written: int = 0

    def __post_init__(self) -> None:
        columns = {"id": Primitive.LONG, "name": Primitive.STRING}
        self.database.add_table(TABLE, columns, key=["id"])

    def name(self, table: str) -> TableName:
        return TableName(self.catalog, ("shop",), table)

    def change(self) -> None:
        """A row more, another one changed, and one gone."""
        self.written += 3
        new = [self.written + each for each in range(3)]
        rows = [InsertRow(TABLE, {"id": each, "name": "new"}) for each in new]
        self.database.transact(*rows)
        self.database.transact(
            UpdateRow(TABLE, (new[0],), {"id": new[0], "name": f"after {self.written}"}),
            DeleteRow(TABLE, (new[1],)),
        )

    def ingest(self) -> None:
        lake = Lake(self.spark, self.catalog)
        ingester = Ingester(
            self.spark,
            lake,
            InMemorySource(self.database),
            Ledger.ensure(lake, self.name("ledger")),
            settings=IngestSettings(pipeline="faults", limit=Limit(1000, ROOMY), held_bytes=ROOMY),
            captures=lambda _: CaptureSettings(changelog=self.name("users_changelog")),
        )
        while ingester.copy_tables() is not None:
            pass
        while ingester.step() is not None:
            pass

    def merge(self) -> None:
        settings = MergeSettings(
            changelog=self.name("users_changelog"),
            mirror=self.name("users"),
            key=("id",),
            # A run for every merge, and an empty cache each time: the index is read from the store.
            index=IndexSettings(cache_dir=self.folder / uuid4().hex, young_entries=1),
        )
        Merger(self.spark, Lake(self.spark, self.catalog), settings).merge()

    def work(self) -> FrazilError | None:
        """One run of everything; what it stopped with, if it did. Anything else is a defect."""
        try:
            self.ingest()
            self.merge()
        except FrazilError as stopped:
            return stopped
        return None

    def check(self) -> None:
        """The mirror is what the source is, and every change is in the changelog once."""
        expected = {int(str(row["id"])): row["name"] for row in self.database.contents(TABLE)}
        found = self.spark.table(self.name("users").quoted).collect()
        assert sorted((row.id, row.name) for row in found) == sorted(expected.items())
        changes = self.spark.table(self.name("users_changelog").quoted).collect()
        sequences = [row.cdc_sequence_number for row in changes if row.cdc_operation != "READ"]
        assert len(set(sequences)) == len(sequences)


@pytest.fixture(scope="module")
def world(
    spark: SparkSession, object_store: ObjectStore, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("faults")
    name = f"f_{uuid4().hex[:8]}"
    with HttpProxy(object_store.endpoint, keep_host=True) as proxy:
        document = folder / "frazil.yaml"
        document.write_text(
            DOCUMENT.format(
                name=name,
                folder=folder,
                bucket=object_store.bucket,
                endpoint=proxy.url,
                key=object_store.access_key,
                secret=object_store.secret_key,
            )
        )
        attach_session(spark, load_config(document, environ={}).config)
        made = World(spark, proxy, name, folder)
        made.change()
        assert made.work() is None
        made.check()
        yield made


# The requests, and the replies instead.
PASSING: dict[str, tuple[Match, list[Fault]]] = {
    "slow down for ingest": (request_to(WRITES, CHANGES), [SLOW_DOWN] * 2),
    "slow down for merge": (request_to(WRITES, ROWS), [SLOW_DOWN] * 2),
    "slow down for readers": (request_to(READS, CHANGES), [SLOW_DOWN] * 2),
    "an upload of ingest is cut": (request_to(WRITES, CHANGES), [Refuse()]),
    "an upload of merge is cut": (request_to(WRITES, ROWS), [Refuse()]),
    "no reply to ingest": (request_to(WRITES, CHANGES), [LoseReply()]),
    "no reply to merge": (request_to(WRITES, ROWS), [LoseReply()]),
    "no reply for the index": (request_to(WRITES, INDEX), [LoseReply()]),
    "changes are cut": (request_to(READS, CHANGES), [CutReply(20)] * 2),
    "the ledger is cut": (request_to(READS, LEDGER), [CutReply(20)] * 2),
    "the index is cut": (request_to(READS, INDEX), [CutReply(20)] * 2),
    "metadata is cut": (request_to(READS, METADATA), [CutReply(20)] * 2),
    "no reply for metadata": (request_to(WRITES, METADATA), [LoseReply(), SLOW_DOWN]),
}


@pytest.mark.fault("K2", "S1", "S2", "S3", "C7")
@pytest.mark.parametrize(("match", "faults"), PASSING.values(), ids=PASSING)
def test_a_fault_that_passes_costs_at_most_a_run(
    world: World, match: Match, faults: list[Fault]
) -> None:
    world.change()
    before = len(world.proxy.requests)
    world.proxy.script(match, *faults)
    try:
        world.work()
    finally:
        world.proxy.heal()
    met = [each for each in world.proxy.requests[before:] if each.fault in faults]
    assert met, "the fault did not come"
    assert world.work() is None
    world.check()


@pytest.mark.fault("S1", "S4", "C6")
@pytest.mark.parametrize(
    ("match", "fault"),
    [
        (request_to(WRITES, CHANGES), SLOW_DOWN),
        (request_to(WRITES, ROWS), EXPIRED),
        (request_to(READS, INDEX), DENIED),
        (request_to(WRITES, CHANGES), SKEWED),
    ],
    ids=["slow down", "credentials that expire", "no access to the index", "a skewed clock"],
)
def test_a_fault_that_stays_stops_the_run_by_name_and_leaves_the_tables_intact(
    world: World, object_store: ObjectStore, match: Match, fault: Fault
) -> None:
    world.change()
    world.proxy.script(match, *[fault] * FOR_EVER)
    try:
        stopped = world.work()
    finally:
        world.proxy.heal()
    assert isinstance(stopped, LakeError)
    assert object_store.secret_key not in f"{stopped}{stopped.next_step}"
    assert world.work() is None
    world.check()


def test_nothing_is_decided_by_a_listing(world: World) -> None:
    """A store may list what is gone and hide what is there: so it is never queried."""
    before = len(world.proxy.requests)
    world.change()
    assert world.work() is None
    requests = world.proxy.requests[before:]
    assert requests
    assert not [
        each.path for each in requests if "list-type" in each.path or "prefix=" in each.path
    ]
