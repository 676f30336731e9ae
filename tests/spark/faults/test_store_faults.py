"""Ingest, merge and index over an object store that fails: runs end well or by name, and go on.

The store is a real one behind a proxy. After each fault the same work is done again, as the next
process would, and the mirror is what the source is.
"""

from __future__ import annotations

import re
import resource
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from frazil.cli.verbs.check import inspect_lake
from frazil.clients.iceberg.lake import Lake
from frazil.clients.spark.session import attach_session
from frazil.config import load_config
from frazil.errors import LakeError
from frazil.pipeline.checks import SourceFindings
from frazil.pipeline.recovery import RecoveryAction, recovery_for
from tests.support.faults.proxy import Answer, CutReply, CutRequest, HttpProxy, LoseReply, Refuse
from tests.support.ingest.mirrored_world import World, asking
from tests.support.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.config import Config
    from frazil.demo.services import ObjectStore
    from tests.support.faults.proxy import Fault, Match, _Request

pytestmark = [pytest.mark.spark, pytest.mark.services]

FOR_EVER = 10_000

# The catalog's own retries are shortened: a test shall not wait for them by the minute.
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
# Amazon answers 200 before it has put the parts together, and may have to take it back.
TAKEN_BACK = error(200, "InternalError")


CHANGES, ROWS = r"/users_changelog/data/", r"/users/data/"
LEDGER, INDEX, METADATA = r"/ledger/data/", r"\.stats|/_index/", r"\.avro|\.metadata\.json"
WRITES, READS = "PUT|POST", "GET"
CHECKSUMS = re.compile("(?i)x-amz-(?:sdk-)?checksum-|x-amz-trailer")
# Files of tasks are uploaded in parts, however small they are; the last request makes them a file.
PART, WHOLE = r".*[?&]partNumber=", r".*[?&]uploadId="


def configure(folder: Path, name: str, store: ObjectStore, endpoint: str) -> Config:
    document = folder / "frazil.yaml"
    document.write_text(
        DOCUMENT.format(
            name=name,
            folder=folder,
            bucket=store.bucket,
            endpoint=endpoint,
            key=store.access_key,
            secret=store.secret_key,
        )
    )
    return load_config(document, environ={}).config


@pytest.fixture(scope="module")
def proxy(object_store: ObjectStore) -> Iterator[HttpProxy]:
    with HttpProxy(object_store.endpoint, keep_host=True) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def world(
    spark: SparkSession,
    object_store: ObjectStore,
    proxy: HttpProxy,
    tmp_path_factory: pytest.TempPathFactory,
) -> World:
    folder = tmp_path_factory.mktemp("faults")
    name = f"f_{uuid4().hex[:8]}"
    attach_session(spark, configure(folder, name, object_store, proxy.url))
    made = World(spark, name, folder)
    made.change()
    assert made.work() is None
    made.check()
    return made


# What is asked for, and what comes instead.
PASSING: dict[str, tuple[Match, list[Fault]]] = {
    "slow down for ingest": (asking(WRITES, CHANGES), [SLOW_DOWN] * 2),
    "slow down for merge": (asking(WRITES, ROWS), [SLOW_DOWN] * 2),
    "slow down for readers": (asking(READS, CHANGES), [SLOW_DOWN] * 2),
    "an upload of ingest is cut": (asking(WRITES, CHANGES), [Refuse()]),
    "an upload of merge is cut": (asking(WRITES, ROWS), [Refuse()]),
    "no reply to ingest": (asking(WRITES, CHANGES), [LoseReply()]),
    "no reply to merge": (asking(WRITES, ROWS), [LoseReply()]),
    "no reply for the index": (asking(WRITES, INDEX), [LoseReply()]),
    "changes are cut": (asking(READS, CHANGES), [CutReply(20)] * 2),
    "the ledger is cut": (asking(READS, LEDGER), [CutReply(20)] * 2),
    "the index is cut": (asking(READS, INDEX), [CutReply(20)] * 2),
    "metadata is cut": (asking(READS, METADATA), [CutReply(20)] * 2),
    "no reply for metadata": (asking(WRITES, METADATA), [LoseReply(), SLOW_DOWN]),
    "half of a metadata file": (asking(WRITES, METADATA), [CutRequest()] * 2),
    "half a part of the index": (asking("PUT", INDEX + PART), [CutRequest()] * 2),
    "no reply to a part of ingest": (asking("PUT", CHANGES + PART), [LoseReply()]),
    "no reply to the last request of ingest": (asking("POST", CHANGES + WHOLE), [LoseReply()]),
    "no reply to the last request of merge": (asking("POST", ROWS + WHOLE), [LoseReply()]),
    "an index that is taken back": (asking("POST", INDEX + WHOLE), [TAKEN_BACK]),
}


# Each fault once, and each kind of file.
CI_PASSING = {
    "slow down for merge",
    "slow down for readers",
    "an upload of ingest is cut",
    "no reply to ingest",
    "the ledger is cut",
    "the index is cut",
    "no reply for metadata",
    "half of a metadata file",
    "no reply to the last request of merge",
    "an index that is taken back",
}


@pytest.mark.fault("K2", "S1", "S2", "S3", "C7")
@pytest.mark.parametrize("name", sampled(PASSING, ci=CI_PASSING))
def test_a_fault_that_passes_costs_at_most_a_run(world: World, proxy: HttpProxy, name: str) -> None:
    match, faults = PASSING[name]
    world.change()
    before = len(proxy.requests)
    proxy.script(match, *faults)
    try:
        world.work()
    finally:
        proxy.heal()
    met = [each for each in proxy.requests[before:] if each.fault in faults]
    assert met, "the fault did not come"
    assert world.work() is None
    world.check()


@pytest.mark.fault("K2", "S3")
@pytest.mark.parametrize(
    ("path", "match", "fault"),
    [
        (CHANGES, asking("POST", CHANGES + WHOLE), TAKEN_BACK),
        (ROWS, asking("PUT", ROWS + PART), CutRequest()),
        (ROWS, asking("POST", ROWS + WHOLE), LoseReply()),
    ],
    ids=["taken back for ingest", "half a part of merge", "no reply to merge"],
)
def test_an_incomplete_file_is_never_referenced(
    world: World, proxy: HttpProxy, path: str, match: Match, fault: Fault
) -> None:
    """Whatever the store keeps of it: readers see what they saw, until the next run."""
    world.change()
    before = world.seen()
    proxy.script(match, *[fault] * FOR_EVER)
    try:
        assert isinstance(world.work(), LakeError)
    finally:
        proxy.heal()
    seen = world.seen()
    assert seen["users"] == before["users"]
    assert (seen["users_changelog"] == before["users_changelog"]) == (path == CHANGES)
    assert world.work() is None
    world.check()


@pytest.mark.fault("S1", "S4", "C6")
@pytest.mark.parametrize(
    ("match", "fault"),
    [
        (asking(WRITES, CHANGES), SLOW_DOWN),
        (asking(WRITES, ROWS), EXPIRED),
        (asking(READS, INDEX), DENIED),
        (asking(WRITES, CHANGES), SKEWED),
    ],
    ids=["slow down", "credentials that expire", "no access to the index", "a skewed clock"],
)
def test_a_fault_that_stays_stops_the_run_by_name_and_leaves_the_tables_whole(
    world: World, proxy: HttpProxy, object_store: ObjectStore, match: Match, fault: Fault
) -> None:
    world.change()
    proxy.script(match, *[fault] * FOR_EVER)
    try:
        stopped = world.work()
    finally:
        proxy.heal()
    assert isinstance(stopped, LakeError)
    assert object_store.secret_key not in f"{stopped}{stopped.next_step}"
    assert world.work() is None
    world.check()


def test_nothing_is_decided_by_a_listing(world: World, proxy: HttpProxy) -> None:
    """A store may list what is gone and hide what is there: nobody asks it."""
    before = len(proxy.requests)
    world.change()
    assert world.work() is None
    asked = proxy.requests[before:]
    assert asked
    assert not [each.path for each in asked if "list-type" in each.path or "prefix=" in each.path]


@contextmanager
def no_file_of_the_jvm(spark: SparkSession) -> Iterator[None]:
    """The system lets the JVM write into no file, as if the disk of ``spark.local.dir`` were full.

    Workers of Python are other processes, and have limits of their own.
    """
    jvm: Any = spark.sparkContext._jvm
    pid = int(jvm.java.lang.ProcessHandle.current().pid())
    soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.fault("O2")
def test_without_room_for_spark_a_run_stops_by_name_and_the_next_one_goes_on(
    spark: SparkSession, world: World
) -> None:
    world.change()
    before = world.seen()
    with no_file_of_the_jvm(spark):
        stopped = world.work()
    assert stopped is not None
    assert recovery_for(stopped).action in {RecoveryAction.LATER, RecoveryAction.NOW}, repr(stopped)
    assert world.seen()["users"] == before["users"]
    assert world.work() is None
    world.check()


class StoreWithoutChecksums(HttpProxy):
    """A store of the time before Amazon's clients sent checksums."""

    def _record(self, request: _Request) -> tuple[int, Fault]:
        if any(CHECKSUMS.match(name) for name in request.headers):
            self.script(lambda *_: True, error(400, "InvalidArgument"))
        return super()._record(request)


@pytest.mark.fault("S7")
def test_check_finds_a_store_that_does_not_know_checksums_and_the_setting_helps(
    spark: SparkSession,
    object_store: ObjectStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jvm: Any = spark.sparkContext._jvm
    system = jvm.java.lang.System
    with StoreWithoutChecksums(object_store.endpoint, keep_host=True) as store:

        def look() -> list[str]:
            """What is wrong with the warehouse; the tables of the document are not there yet."""
            name = f"f_{uuid4().hex[:8]}"
            config = configure(tmp_path, name, object_store, store.url)
            found = inspect_lake(
                Lake(attach_session(spark, config), name), config, SourceFindings()
            )
            said = [each.sentence for each in found.problems]
            return [each for each in said if "The warehouse" in each]

        (found,) = look()
        assert "AWS_REQUEST_CHECKSUM_CALCULATION=when_required" in found
        # Java and Arrow read the environment; that of a JVM which runs cannot be changed.
        monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
        system.setProperty("aws.requestChecksumCalculation", "when_required")
        try:
            assert look() == []
        finally:
            system.clearProperty("aws.requestChecksumCalculation")
