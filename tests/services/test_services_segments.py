"""Segments in a real object store: listed from where reading left off, and read many at a time."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING

import pytest

from frazil.cli.exit_codes import ExitCode
from frazil.cli.main import main
from frazil.clients.object_store import Bucket
from frazil.errors import StorageError
from frazil.sources.kafscale.segments.discovery import SegmentBound
from frazil.sources.kafscale.segments.object_keys import TopicPartition
from tests.support.kafscale.broker import Broker
from tests.support.kafscale.segments import Message, client_batch, segment

if TYPE_CHECKING:
    from pathlib import Path

    from frazil.demo.services import ObjectStore

ORDERS = TopicPartition("orders", 0)


def bases(broker: Broker, offset: int, partition: TopicPartition = ORDERS) -> list[int]:
    return [each.base_offset for each in broker.listing.list_from(partition, offset).segments]


@pytest.fixture
def broker(object_store: ObjectStore) -> Broker:
    return Broker(object_store)


def test_listing_begins_where_reading_left_off(broker: Broker) -> None:
    for base in (0, 10, 20, 100):
        broker.flush(ORDERS, base, 10)
    broker.flush(TopicPartition("orders", 10), 0, 1)
    broker.flush(TopicPartition("orders2", 0), 0, 1)
    broker.put("orders/0/manifest.json", b"{}")
    assert bases(broker, 0) == [0, 10, 20, 100]
    assert bases(broker, 20) == [20, 100]
    # Offsets between 30 and 99 are missing, and the segment before ends with 29.
    assert bases(broker, 30) == [100]
    # A position in the middle of a segment.
    assert bases(broker, 25) == [20, 100]
    assert bases(broker, 109) == [100]
    assert bases(broker, 110) == []
    assert [each.base_offset for each in broker.listing.list_new(ORDERS, 25).segments] == [100]
    found = broker.listing.list_partitions({"orders", "orders2", "unknown"})
    expected = {ORDERS, TopicPartition("orders", 10), TopicPartition("orders2", 0)}
    assert found == expected


def test_a_listing_ends_with_what_a_batch_takes(broker: Broker) -> None:
    for base in range(0, 50, 10):
        broker.flush(ORDERS, base, 10)
    listing = broker.listing
    found = listing.list_new(ORDERS, 10, SegmentBound(bytes=1 << 30, segments=2))
    assert ([each.base_offset for each in found.segments], found.more) == ([10, 20], True)
    # And one more than there is room for, which says where the last one ends.
    found = listing.list_new(ORDERS, 10, SegmentBound(bytes=1, segments=9))
    assert ([each.base_offset for each in found.segments], found.more) == ([10, 20], True)
    found = listing.list_new(ORDERS, 10, SegmentBound(bytes=1 << 30, segments=9))
    assert ([each.base_offset for each in found.segments], found.more) == ([10, 20, 30, 40], False)


def test_names_without_zeros_are_in_their_place_in_a_listing_that_ends_early(
    broker: Broker,
) -> None:
    for base in (0, 10, 30):
        broker.flush(ORDERS, base, 10)
    for kind in ("kfs", "index"):
        broker.put(f"{ORDERS}/segment-20.{kind}", b"")
        broker.put(f"{ORDERS}/segment-5.{kind}", b"")
    found = broker.listing.list_new(ORDERS, 0, SegmentBound(bytes=1 << 30, segments=2))
    # What lies behind the last one that was listed comes with the next listing.
    assert [each.base_offset for each in found.segments] == [0, 5, 10]
    found = broker.listing.list_new(ORDERS, 10, SegmentBound(bytes=1 << 30, segments=9))
    assert [each.base_offset for each in found.segments] == [10, 20, 30]


def test_a_position_far_behind_the_beginning_of_its_segment_is_found(broker: Broker) -> None:
    broker.flush(ORDERS, 0, 5)
    broker.flush(ORDERS, 5_000_000, 1)
    last = 10_000_000
    batch = client_batch(100, [Message(b"a")])
    broker.upload(ORDERS, 100, segment([batch], base=100, last=4_999_999))
    assert bases(broker, 4_000_000) == [100, 5_000_000]
    assert bases(broker, last) == []


def test_objects_are_read_in_order_and_failures_are_in_their_place(broker: Broker) -> None:
    keys = [broker.put(f"read/{at:03d}", b"%d" % at * at) for at in range(50)]
    missing = f"{broker.namespace}/read/missing"
    # As a task gets it.
    bucket: Bucket = pickle.loads(pickle.dumps(broker.bucket))
    found = list(bucket.read_each([*keys[:30], missing, *keys[30:]], connections=4))
    assert [key for key, _ in found] == [*keys[:30], missing, *keys[30:]]
    failure = found.pop(30)[1]
    assert isinstance(failure, StorageError)
    assert failure.is_gone
    assert [data for _, data in found] == [b"%d" % at * at for at in range(50)]
    assert bucket.read_end(keys[12], 3) == b"212"


def test_an_object_that_is_too_large_is_not_read(broker: Broker) -> None:
    keys = [broker.put(f"large/{size}", b"x" * size) for size in (10, 11)]
    (_, small), (_, large) = broker.bucket.read_each(keys, at_most=10)
    assert small == b"x" * 10
    assert isinstance(large, StorageError)
    assert large.is_too_large
    assert not large.is_gone


def test_a_store_that_refuses_shows_neither_keys_nor_addresses(broker: Broker) -> None:
    wrong = Bucket(
        name=broker.bucket.name,
        region="us-east-1",
        endpoint=broker.bucket.endpoint,
        path_style=True,
        access_key_id="nobody-known",
        secret_access_key="not-the-secret",
    )
    with pytest.raises(StorageError) as failed:
        wrong.read("any/key")
    assert "not-the-secret" not in f"{failed.value!r}{failed.value}{wrong!r}"
    assert "http" not in str(failed.value)


DOCUMENT = """
pipeline: shop
catalog: {{kind: sql, uri: 'sqlite:///catalog.db', warehouse: ./lake}}
storage:
  s3:
    endpoint: {endpoint}
    region: {region}
    access_key_id: {key}
    secret_access_key: {secret}
    path_style: true
tables:
  - {{mirror: public.users, changelog: public.users_changelog, key: [id]}}
"""


def test_a_segment_is_decoded_where_it_is(
    broker: Broker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = broker.flush(ORDERS, 20, 3)
    bucket = broker.bucket
    assert bucket.size(key) == len(bucket.read(key))
    address = f"s3://{bucket.name}/{key}"
    document = tmp_path / "frazil.yaml"
    text = DOCUMENT.format(
        endpoint=bucket.endpoint,
        region=bucket.region,
        key=bucket.access_key_id,
        secret=bucket.secret_access_key,
    )
    document.write_text(text)
    assert main(["decode", "segment", address, "--records", "-c", str(document)]) == ExitCode.DONE
    values = [json.loads(line)["value"] for line in capsys.readouterr().out.splitlines()]
    assert values == ["20", "21", "22"]
    missing = main(["decode", "segment", f"{address}.gone", "-c", str(document)])
    assert missing == ExitCode.USAGE
    # Without a document, as the AWS tools do.
    monkeypatch.setenv("AWS_ENDPOINT_URL", str(bucket.endpoint))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", str(bucket.access_key_id))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", str(bucket.secret_access_key))
    capsys.readouterr()
    assert main(["decode", "segment", address, "-o", "json"]) == ExitCode.DONE
    assert json.loads(capsys.readouterr().out.splitlines()[0])["base_offset"] == 20
