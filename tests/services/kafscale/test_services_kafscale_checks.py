"""A KafScale source with a real store, etcd and registry: what a check finds, and its health."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from frazil.clients.etcd.client import Etcd
from frazil.clients.object_store import Bucket
from frazil.config.models.kafscale_source import KafscaleSection
from frazil.errors import (
    PermissionError,  # noqa: A004 - the published name of this error
    SourceUnavailableError,
    StorageError,
)
from frazil.hooks import ManualClock
from frazil.sources.findings import Severity
from frazil.sources.kafscale.checks import check_readiness, check_source
from frazil.sources.kafscale.coordination.keys import CoordinationKeys, offset_value
from frazil.sources.kafscale.coordination.leases import PartitionLeases
from frazil.sources.kafscale.health import watch_health
from frazil.sources.kafscale.record_counts import KafscaleRecords
from frazil.sources.kafscale.segments.cluster_snapshot import SNAPSHOT_KEY
from frazil.sources.kafscale.segments.discovery import SegmentListing
from frazil.sources.kafscale.segments.object_keys import TopicPartition
from tests.support.kafscale.broker import Broker
from tests.support.kafscale.etcd_history import claim_as_processor, encode, put, request, value_at
from tests.support.kafscale.guarded_etcd import PASSWORD, guarded_etcd
from tests.support.kafscale.registry_server import registry
from tests.support.kafscale.segments import Message, client_batch, segment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from frazil.demo.services import EtcdServer, ObjectStore
    from frazil.sources.findings import Findings

pytestmark = pytest.mark.services

ORDERS = TopicPartition("orders", 0)
NOWHERE = "http://127.0.0.1:9"
BY_ITSELF = {"discovery": "s3", "offsets": {"backend": "none"}}


class CheckedBroker(Broker):
    """A broker with the settings of a source that reads it."""

    def section(self, *topics: str | dict[str, Any], **settings: object) -> KafscaleSection:
        tables = [
            {"topic": each, "table": f"lake.{each}"} if isinstance(each, str) else each
            for each in topics
        ]
        document = {
            "kind": "kafscale",
            "bucket": self.bucket.name,
            "namespace": self.namespace,
            "topics": tables,
            **settings,
        }
        return KafscaleSection.model_validate(document)

    def check(self, *topics: str | dict[str, Any], **settings: object) -> Findings:
        return check_source(self.section(*topics, **settings), self.bucket)


@pytest.fixture
def broker(object_store: ObjectStore) -> CheckedBroker:
    return CheckedBroker(object_store)


def seen(findings: Findings) -> dict[str, str]:
    return {each.about: each.found for each in findings.checked}


def with_etcd(endpoint: str, **more: object) -> dict[str, object]:
    return {"etcd": {"endpoints": [endpoint]}, "offsets": {"key_prefix": uuid4().hex}, **more}


def test_a_source_in_order_has_no_problem_and_what_is_not_configured_is_not_asked(
    broker: CheckedBroker,
) -> None:
    broker.flush(ORDERS, 0, 3)
    broker.flush(TopicPartition("orders", 1), 0, 1)
    found = broker.check("orders", **BY_ITSELF)
    assert found.problems == ()
    assert seen(found).keys() == {"bucket", "topic orders"}
    assert seen(found)["topic orders"] == "2 partitions"
    assert [each.name for each in found.tables or ()] == ["orders"]
    assert check_readiness(broker.section("orders", **BY_ITSELF), broker.bucket).problems == ()


def test_a_topic_without_a_segment_is_a_warning_that_names_the_one_that_was_meant(
    broker: CheckedBroker,
) -> None:
    broker.flush(ORDERS, 0, 1)
    broker.upload(TopicPartition("damaged", 0), 0, b"KAFS" * 20)
    found = broker.check("order", "damaged", **BY_ITSELF)
    misspelt, damaged = found.problems
    assert (misspelt.severity, misspelt.table) == (Severity.WARNS, "order")
    assert "did you mean orders?" in misspelt.sentence
    assert (damaged.severity, damaged.table) == (Severity.WARNS, "damaged")


def test_another_namespace_that_has_the_topics_is_named(broker: CheckedBroker) -> None:
    topic = f"t{uuid4().hex}"
    broker.flush(TopicPartition(topic, 0), 0, 1)
    (elsewhere, missing) = broker.check(topic, **BY_ITSELF, namespace=uuid4().hex).problems
    assert f"set source.namespace: {broker.namespace}" in elsewhere.sentence
    assert missing.table == topic


def test_an_empty_namespace_does_not_find_what_brokers_write_by_default(
    broker: CheckedBroker,
) -> None:
    broker.namespace = "default"
    broker.flush(ORDERS, 0, 1)
    found = broker.check("orders", **BY_ITSELF, namespace="")
    assert "set source.namespace: default" in found.problems[0].sentence
    assert "orders" not in {each.removeprefix("topic ") for each in seen(found)}


def test_a_bucket_that_is_not_there_stops_everything(broker: CheckedBroker) -> None:
    other = Bucket(**{**vars(broker.bucket), "name": "no-such-bucket"})
    section = broker.section("orders", **BY_ITSELF)
    found = check_source(section, other)
    assert isinstance(found.error, StorageError)
    assert [each.severity for each in found.problems] == [Severity.STOPS]
    assert "source.bucket" in found.problems[0].sentence
    with pytest.raises(StorageError):
        check_readiness(section, other)


def test_an_etcd_that_is_away_stops_what_needs_it_and_no_more(broker: CheckedBroker) -> None:
    broker.flush(ORDERS, 0, 1)
    needed = with_etcd(NOWHERE)
    (problem,) = broker.check("orders", **needed).problems
    assert problem.severity is Severity.STOPS
    assert "source.etcd.endpoints" in problem.sentence
    with pytest.raises(SourceUnavailableError):
        check_readiness(broker.section("orders", **needed), broker.bucket)
    optional = with_etcd(NOWHERE, offsets={"backend": "none"})
    (problem,) = broker.check("orders", **optional).problems
    assert problem.severity is Severity.WARNS
    check_readiness(broker.section("orders", **optional), broker.bucket)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EtcdServer, Path]]:
    with guarded_etcd(tmp_path_factory.mktemp("etcd-tls")) as found:
        yield found


def test_etcd_is_signed_in_to_over_tls_and_has_to_allow_writing(
    broker: CheckedBroker, guarded: tuple[EtcdServer, Path]
) -> None:
    server, ca = guarded
    broker.flush(ORDERS, 0, 1)

    def check(**etcd: object) -> Findings:
        address = {"endpoints": [server.tls_endpoint], "password": PASSWORD}
        return broker.check("orders", discovery="s3", etcd={**address, **etcd})

    found = check(username="writer", ca=str(ca))
    assert found.problems == ()
    assert seen(found)["etcd"] == "answers over TLS, signed in as writer"
    assert "permission denied" in check(username="reader", ca=str(ca)).problems[0].sentence
    refused = check(username="writer", password="wrong", ca=str(ca))
    assert isinstance(refused.error, PermissionError)
    assert "source.etcd.username" in refused.problems[0].sentence
    assert "source.etcd.ca" in check(username="writer").problems[0].sentence


def test_the_brokers_description_decides_in_etcd_who_is_served(
    broker: CheckedBroker, etcd: EtcdServer
) -> None:
    broker.flush(ORDERS, 0, 1)
    settings = with_etcd(etcd.endpoint, discovery="etcd")
    request(etcd.endpoint, "kv/deleterange", key=encode(SNAPSHOT_KEY))
    assert SNAPSHOT_KEY in broker.check("orders", **settings).problems[0].sentence
    try:
        put(etcd.endpoint, SNAPSHOT_KEY, b"[]")
        assert broker.check("orders", **settings).problems[0].severity is Severity.STOPS
        topics = [{"Topic": "order", "Partitions": [{"Partition": 0}]}]
        put(etcd.endpoint, SNAPSHOT_KEY, json.dumps({"Topics": topics}).encode())
        (problem,) = broker.check("orders", **settings).problems
        assert (problem.severity, problem.table) == (Severity.WARNS, "orders")
        assert "did you mean order?" in problem.sentence
    finally:
        request(etcd.endpoint, "kv/deleterange", key=encode(SNAPSHOT_KEY))


def test_a_processor_that_still_holds_partitions_is_named(
    broker: CheckedBroker, etcd: EtcdServer
) -> None:
    broker.flush(ORDERS, 0, 1)
    broker.flush(TopicPartition("orders", 1), 0, 1)
    section = broker.section("orders", **with_etcd(etcd.endpoint, discovery="s3"))
    keys = CoordinationKeys(section.offsets.key_prefix)
    claim_as_processor(etcd.endpoint, keys.lease(TopicPartition("orders", 1)))
    with PartitionLeases(
        Etcd([etcd.endpoint]),
        keys,
        owner="ours",
        topics=["orders"],
        ttl=section.offsets.lease_ttl,
    ) as leases:
        leases.rebalance([ORDERS])
        found = check_source(section, broker.bucket)
        other = check_source(section, broker.bucket, "another")
    assert other.problems == found.problems, "an unnamed one is not another one"
    (problem,) = found.problems
    assert problem.severity is Severity.WARNS
    assert "processor-0" in problem.sentence
    assert "orders/1" in problem.sentence
    assert seen(found)["leases"] == "2 partitions held, by 1 worker of frazil"
    # Whether writing is allowed is found out without writing.
    assert value_at(etcd.endpoint, keys.worker("check")) is None
    assert value_at(etcd.endpoint, keys.offset(TopicPartition("check", 0))) is None


def test_schemas_and_columns_have_to_be_usable(broker: CheckedBroker) -> None:
    topics = ("fine", "unregistered", "nothing", "clashing")
    for topic in topics:
        broker.flush(TopicPartition(topic, 0), 0, 1)
    schemas = {
        "/fine.json": {"properties": {"id": {"type": "integer"}}},
        "/nothing.json": {"properties": {"lines": {"type": "array"}}},
        "/clashing.json": {"properties": {"Offset": {"type": "integer"}}},
    }
    with registry(schemas) as address:
        found = broker.check(*topics, **BY_ITSELF, registry={"base_url": address})
    assert {each.table: each.severity for each in found.problems} == dict.fromkeys(
        topics[1:], Severity.STOPS
    )
    assert seen(found)["schema of fine"] == "in the registry, 1 column"
    away = broker.check(*topics, **BY_ITSELF, registry={"base_url": NOWHERE})
    (problem,) = away.problems
    assert "source.registry.base_url" in problem.sentence


def test_a_declared_column_must_not_be_called_like_one_that_every_table_has(
    broker: CheckedBroker,
) -> None:
    broker.flush(ORDERS, 0, 1)
    columns = [{"name": "Partition", "type": "int"}, {"name": "lfs_key", "type": "string"}]
    topic: dict[str, Any] = {"topic": "orders", "table": "lake.orders", "columns": columns}
    (problem,) = broker.check(topic, **BY_ITSELF).problems
    assert (problem.severity, problem.table) == (Severity.STOPS, "orders")
    assert "Partition" in problem.sentence
    assert "lfs_key" not in problem.sentence
    stored = {**topic, "lfs": {"mode": "reference", "store_metadata": True}}
    assert "lfs_key" in broker.check(stored, **BY_ITSELF).problems[0].sentence
    changes = {"topic": "orders", "changelog": "lake.orders_changelog", "columns": columns}
    assert broker.check(changes, **BY_ITSELF).problems == ()


def test_health_says_how_far_partitions_are_and_who_holds_them(
    broker: CheckedBroker, etcd: EtcdServer
) -> None:
    second = TopicPartition("orders", 1)
    broker.flush(ORDERS, 0, 10)
    broker.flush(ORDERS, 10, 5)
    broker.flush(second, 7, 3)
    section = broker.section("orders", **with_etcd(etcd.endpoint))
    keys = CoordinationKeys(section.offsets.key_prefix)
    put(etcd.endpoint, keys.offset(ORDERS), offset_value(9, now_ms=0))
    claim_as_processor(etcd.endpoint, keys.lease(second))
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    health = watch_health(section, broker.bucket, seconds=10, clock=clock)
    first = health.load()
    assert first.newest == {"orders/0": 15, "orders/1": 10}
    assert first.facts is not None
    captured, claimed = first.facts.partitions
    assert (captured.offset, captured.lag, captured.holder) == (10, 5, None)
    assert (claimed.offset, claimed.lag, claimed.holder) == (None, None, "processor-0")
    broker.flush(ORDERS, 15, 2)
    clock.advance(9)
    again = health.load()
    assert (again.newest, again.age_seconds) == (first.newest, 9)
    clock.advance(1)
    assert health.load().newest == {"orders/0": 17, "orders/1": 10}


def test_records_are_counted_by_their_offsets_before_a_marker(broker: CheckedBroker) -> None:
    second = TopicPartition("orders", 1)
    broker.flush(ORDERS, 40, 3)
    broker.flush(ORDERS, 43, 2)
    broker.flush(ORDERS, 45, 2)
    broker.upload(ORDERS, 44, b"KAFS" * 20)
    broker.flush(second, 0, 4)
    topic = {"topic": "orders", "table": "lake.orders", "lfs": {"mode": "skip"}}
    envelope = b'{"kfs_lfs": 1, "key": "a/b"}'
    skipped = client_batch(4, [Message(envelope), Message(b"{}")])
    broker.upload(second, 4, segment([skipped], base=4))

    def offsets_of(section: KafscaleSection) -> tuple[dict[int, list[int]], Mapping[int, int]]:
        listing = SegmentListing(broker.bucket, broker.namespace)
        records = KafscaleRecords(section, broker.bucket, listing)
        assert records.has("orders")
        assert not records.has("other")
        counted = records.offsets_of("orders", {"orders/0": 45, "orders/1": 6, "orders/2": 9})
        assert counted.partitions == {0: "orders/0", 1: "orders/1", 2: "orders/2"}
        read: dict[int, list[int]] = {}
        for split in counted.splits:
            for partition, offsets in counted.reader.read(split):
                read.setdefault(partition, []).extend(offsets.to_pylist())
        return read, counted.begins

    # What does not decode is a dead letter, and what begins with 45 is not in the table yet.
    read, begins = offsets_of(broker.section("orders", **BY_ITSELF))
    assert read == {0: [40, 41, 42, 43, 44], 1: [0, 1, 2, 3, 4, 5]}
    assert begins == {0: 40, 1: 0}
    assert offsets_of(broker.section(topic, **BY_ITSELF))[0][1] == [0, 1, 2, 3, 5]
