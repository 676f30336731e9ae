"""A broker as the object store sees it: segments with their indexes, partition by partition."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING
from uuid import uuid4

import obstore
from obstore.store import S3Store

from frazil.clients.object_store import Bucket
from frazil.sources.kafscale.segments.discovery import SegmentListing
from tests.support.kafscale.segments import Message, client_batch, index_of, segment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frazil.demo.services import ObjectStore
    from frazil.sources.kafscale.segments.object_keys import TopicPartition


class Broker:
    """Writes segments as a broker does, in a namespace of its own."""

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
        self.next_offsets: dict[TopicPartition, int] = defaultdict(int)

    def put(self, key: str, data: bytes) -> str:
        obstore.put(self._store, f"{self.namespace}/{key}", data)
        return f"{self.namespace}/{key}"

    def delete(self, partition: TopicPartition) -> None:
        """All segments of a partition, as a lifecycle rule does."""
        prefix = f"{self.namespace}/{partition}/"
        keys = [each.key for each in self.bucket.list_after(prefix, "")]
        obstore.delete(self._store, keys)

    def produce(
        self, partition: TopicPartition, messages: Sequence[Message], *, compression: int = 0
    ) -> str:
        """A segment of these messages at the partition's next offset; its key."""
        base = self.next_offsets[partition]
        self.next_offsets[partition] += len(messages)
        batch = client_batch(base, messages, compression=compression)
        return self.upload(partition, base, segment([batch], base=base))

    def upload(self, partition: TopicPartition, base: int, data: bytes) -> str:
        """The two files of a segment; its key."""
        name = f"{partition}/segment-{base:020d}"
        self.put(f"{name}.index", index_of(base))
        return self.put(f"{name}.kfs", data)

    def flush(self, partition: TopicPartition, base: int, count: int) -> str:
        """A segment of so many messages, from any offset on; its key."""
        self.next_offsets[partition] = base
        return self.produce(partition, [Message(b"%d" % (base + at)) for at in range(count)])
