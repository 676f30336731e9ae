"""Segments in a real object store: listed from where reading left off, and read many at a time."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING
from uuid import uuid4

import obstore
import pytest
from obstore.store import S3Store

from frazil.cli.exit_codes import ExitCode
from frazil.cli.main import main
from frazil.clients.object_store import Bucket
from frazil.errors import StorageError
from frazil.sources.kafscale.segments.discovery import SegmentListing
from frazil.sources.kafscale.segments.object_keys import TopicPartition
from tests.support.kafscale.segments import Message, client_batch, index_of, segment

if TYPE_CHECKING:
    from pathlib import Path

    from frazil.demo.services import ObjectStore

ORDERS = TopicPartition("orders", 0)


class Broker:
    """Writes segments as a broker does."""

    def __init__(self, service: ObjectStore) -> None:
        self.namespace = uuid4().hex
        self.bucket = Bucket(
            name=service.bucket,
            region=service.region,
            endpoint=service.endpoint,
            path_style=True,
            access_key_id=service.access_key,
            secret_access_key=service.secret_key,
        )
        self._store = S3Store(
            service.bucket,
            config={
                "endpoint": service.endpoint,
                "region": service.region,
                "access_key_id": service.access_key,
                "secret_access_key": service.secret_key,
            },
            client_options={"allow_http": True},
        )
        self.listing = SegmentListing(self.bucket, self.namespace)

    def put(self, key: str, data: bytes) -> str:
        obstore.put(self._store, f"{self.namespace}/{key}", data)
        return f"{self.namespace}/{key}"

    def flush(self, partition: TopicPartition, base: int, count: int) -> str:
        """A segment of so many messages; its key."""
        batch = client_batch(base, [Message(b"%d" % (base + at)) for at in range(count)])
        name = f"{partition}/segment-{base:020d}"
        self.put(f"{name}.index", index_of(base))
        return self.put(f"{name}.kfs", segment([batch], base=base))

    def bases(self, offset: int, partition: TopicPartition = ORDERS) -> list[int]:
        return [each.base_offset for each in self.listing.list_from(partition, offset)]


@pytest.fixture
def broker(object_store: ObjectStore) -> Broker:
    return Broker(object_store)


def test_listing_begins_where_reading_left_off(broker: Broker) -> None:
    for base in (0, 10, 20, 100):
        broker.flush(ORDERS, base, 10)
    broker.flush(TopicPartition("orders", 10), 0, 1)
    broker.flush(TopicPartition("orders2", 0), 0, 1)
    broker.put("orders/0/manifest.json", b"{}")
    assert broker.bases(0) == [0, 10, 20, 100]
    assert broker.bases(20) == [20, 100]
    # Offsets between 30 and 99 are missing, and the segment before ends with 29.
    assert broker.bases(30) == [100]
    # A position in the middle of a segment.
    assert broker.bases(25) == [20, 100]
    assert broker.bases(109) == [100]
    assert broker.bases(110) == []
    assert [each.base_offset for each in broker.listing.list_new(ORDERS, 25)] == [100]
    found = broker.listing.list_partitions({"orders", "orders2", "unknown"})
    expected = {ORDERS, TopicPartition("orders", 10), TopicPartition("orders2", 0)}
    assert found == expected


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
