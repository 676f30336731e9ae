"""Who holds which partition, as anybody can read it in etcd; nothing is claimed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.clients.etcd.transactions import Range, Txn

if TYPE_CHECKING:
    from frazil.clients.etcd.client import Etcd
    from frazil.sources.kafscale.coordination.keys import CoordinationKeys
    from frazil.sources.kafscale.segments.object_keys import TopicPartition

_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Holder:
    """Whoever claimed a partition; ``is_ours`` is false for a worker of KafScale's processor."""

    name: str
    is_ours: bool


def load_holders(etcd: Etcd, keys: CoordinationKeys) -> dict[TopicPartition, Holder]:
    """The holder of each partition that is claimed, as of one moment."""
    view = etcd.read(
        Txn(
            [
                Range(keys.workers, is_prefix=True, only_keys=True),
                Range(keys.leases, is_prefix=True),
            ]
        )
    )
    workers, claims = view.found
    # The processor does not write itself down among the workers.
    ours = {each.lease for each in workers}
    return {
        partition: Holder(_owner(each.value), each.lease in ours)
        for each in claims
        if (partition := keys.claimed_partition(each.key)) is not None
    }


def _owner(value: bytes) -> str:
    try:
        owner = json.loads(value)["owner_id"]
    except (LookupError, TypeError, ValueError):
        return _UNKNOWN
    return owner if isinstance(owner, str) else _UNKNOWN
