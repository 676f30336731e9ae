"""Workers share partitions by leases in etcd: never two at a time, and none is left alone."""

from __future__ import annotations

import json
import threading
import uuid
from collections import Counter
from contextlib import ExitStack
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from frazil.clients.etcd.client import Etcd
from frazil.errors import ConfigError, LeaseLostError, SourceUnavailableError
from frazil.hooks import SystemClock
from frazil.sources.kafscale.coordination.keys import CoordinationKeys, offset_value
from frazil.sources.kafscale.coordination.leases import PartitionLeases
from frazil.sources.kafscale.coordination.offsets import PartitionOffsets
from frazil.sources.kafscale.segments.object_keys import TopicPartition
from tests.support.faults.proxy import HoldUntilReleased, HttpProxy, LoseReply, TcpProxy
from tests.support.kafscale.etcd_history import (
    claim_as_processor,
    encode,
    history,
    put,
    request,
    value_at,
)
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from frazil.clients.etcd.transactions import Outcome, Txn
    from frazil.demo.services import EtcdServer

pytestmark = pytest.mark.services

ORDERS = [TopicPartition("orders", number) for number in range(6)]
FIRST = ORDERS[0]
# Waited for, and yet longer than a busy machine keeps a thread waiting.
SHORT = timedelta(seconds=2)
# Longer than any test here.
LONG = timedelta(seconds=60)


@pytest.fixture
def keys() -> CoordinationKeys:
    return CoordinationKeys(f"test-{uuid.uuid4().hex}")


@pytest.fixture
def join(etcd: EtcdServer, keys: CoordinationKeys) -> Iterator[Callable[..., PartitionLeases]]:
    """Start a worker; all of them leave at the end."""
    with ExitStack() as stack:

        def start(
            owner: str, *, ttl: timedelta = LONG, endpoint: str = etcd.endpoint
        ) -> PartitionLeases:
            client = Etcd([endpoint], timeout_seconds=1)
            worker = PartitionLeases(client, keys, owner=owner, topics=["orders"], ttl=ttl)
            return stack.enter_context(worker)

        yield start


@pytest.fixture
def wire(etcd: EtcdServer) -> Iterator[TcpProxy]:
    """A way to etcd that can be cut."""
    with TcpProxy(etcd.host, etcd.port) as proxy:
        yield proxy


def offsets_of(
    leases: PartitionLeases, etcd: EtcdServer, keys: CoordinationKeys
) -> PartitionOffsets:
    return PartitionOffsets(Etcd([etcd.endpoint]), keys, leases)


def test_a_claim_is_written_as_the_processor_writes_it(
    join: Callable[..., PartitionLeases], etcd: EtcdServer, keys: CoordinationKeys
) -> None:
    assert join("host-1").rebalance([FIRST]) == {FIRST}
    value = value_at(etcd.endpoint, f"{keys.prefix}/leases/orders/0")
    assert value is not None
    fields = json.loads(value)
    assert list(fields) == ["owner_id", "lease_expires_at", "generation"]
    assert (fields["owner_id"], fields["generation"]) == ("host-1", 1)


def test_the_processor_and_we_exclude_each_other(
    join: Callable[..., PartitionLeases], etcd: EtcdServer, keys: CoordinationKeys
) -> None:
    theirs = claim_as_processor(etcd.endpoint, keys.lease(FIRST))
    ours = join("a")
    assert ours.rebalance(ORDERS) == set(ORDERS[1:])
    assert claim_as_processor(etcd.endpoint, keys.lease(ORDERS[1])) is None
    request(etcd.endpoint, "lease/revoke", ID=theirs)
    assert ours.rebalance(ORDERS) == set(ORDERS)


@pytest.mark.fault("U22")
def test_only_partitions_of_mapped_topics_are_claimed(
    join: Callable[..., PartitionLeases],
) -> None:
    assert join("a").rebalance([FIRST, TopicPartition("unmapped", 0)]) == {FIRST}


@pytest.mark.fault("U8")
def test_workers_that_come_get_their_share_and_give_it_back_when_they_leave(
    join: Callable[..., PartitionLeases],
) -> None:
    first = join("a")
    assert first.rebalance(ORDERS) == set(ORDERS)
    second = join("b")
    assert second.rebalance(ORDERS) == frozenset()
    assert len(first.rebalance(ORDERS)) == 3
    assert second.rebalance(ORDERS) == set(ORDERS) - first.held()
    third = join("c")
    for worker in (third, first, second, third):
        worker.rebalance(ORDERS)
    assert [len(each.held()) for each in (first, second, third)] == [2, 2, 2]
    second.close()
    assert second.held() == frozenset()
    for worker in (first, third):
        worker.rebalance(ORDERS)
    assert first.held() | third.held() == set(ORDERS)
    assert len(first.held()) == len(third.held()) == 3


def test_another_pipeline_with_the_same_prefix_and_topic_is_refused_and_the_first_goes_on(
    etcd: EtcdServer, keys: CoordinationKeys
) -> None:
    def join(pipeline: str, *topics: str) -> PartitionLeases:
        return PartitionLeases(
            Etcd([etcd.endpoint]),
            keys,
            owner=f"of-{pipeline}",
            topics=topics,
            ttl=timedelta(seconds=30),
            pipeline=pipeline,
        )

    with join("shop", "orders") as first, join("audit", "orders") as second:
        assert first.rebalance(ORDERS) == set(ORDERS)
        with pytest.raises(ConfigError, match="workers of the pipeline shop"):
            second.rebalance(ORDERS)
        assert first.rebalance(ORDERS) == set(ORDERS)
        with join("stock", "stock") as third:
            assert third.rebalance([TopicPartition("stock", 0)])


class EtcdBetween(Etcd):
    """Something happens right after the first look of the worker that uses it."""

    after_first_look: Callable[[], object] | None = None

    def read(self, transaction: Txn) -> Outcome:
        found = super().read(transaction)
        happens, self.after_first_look = self.after_first_look, None
        if happens is not None:
            happens()
        return found


@pytest.mark.parametrize("other", ["audit", "shop"])
def test_of_two_pipelines_that_join_at_the_same_moment_one_is_refused(
    etcd: EtcdServer, keys: CoordinationKeys, other: str
) -> None:
    def join(pipeline: str, owner: str, client: Etcd) -> PartitionLeases:
        return PartitionLeases(
            client, keys, owner=owner, topics=["orders"], ttl=LONG, pipeline=pipeline
        )

    slow = EtcdBetween([etcd.endpoint])
    with join("shop", "a", slow) as first, join(other, "b", Etcd([etcd.endpoint])) as second:
        slow.after_first_look = lambda: second.rebalance(ORDERS)
        if other == "shop":
            first.rebalance(ORDERS)
            second.rebalance(ORDERS)
            assert len(first.rebalance(ORDERS)) == len(second.held()) == 3
        else:
            with pytest.raises(ConfigError, match="workers of the pipeline audit"):
                first.rebalance(ORDERS)
            assert second.rebalance(ORDERS) == set(ORDERS)
            assert first.held() == frozenset()


def test_a_worker_that_knows_fewer_partitions_gives_none_away_for_it(
    join: Callable[..., PartitionLeases],
) -> None:
    first, second = join("a"), join("b")
    assert first.rebalance(ORDERS[:2]) == set(ORDERS[:2])
    assert len(second.rebalance(ORDERS)) == 3
    assert first.rebalance(ORDERS[:2]) == set(ORDERS[:2])
    first.rebalance(ORDERS)
    assert first.held() | second.held() == set(ORDERS)


def test_a_worker_that_has_left_claims_nothing_more(join: Callable[..., PartitionLeases]) -> None:
    worker = join("a")
    worker.close()
    assert worker.rebalance(ORDERS) == frozenset()


def test_a_partition_that_is_gone_is_released(
    join: Callable[..., PartitionLeases], etcd: EtcdServer, keys: CoordinationKeys
) -> None:
    worker = join("a")
    worker.rebalance(ORDERS)
    assert worker.rebalance(ORDERS[1:]) == set(ORDERS[1:])
    assert value_at(etcd.endpoint, keys.lease(FIRST)) is None


@pytest.mark.fault("L3")
def test_clocks_that_differ_by_hours_do_no_harm(etcd: EtcdServer, keys: CoordinationKeys) -> None:
    class WrongClock(SystemClock):
        def __init__(self, hours: float) -> None:
            self._hours = timedelta(hours=hours)

        def now(self) -> datetime:
            return super().now() + self._hours

    client = Etcd([etcd.endpoint])
    with (
        PartitionLeases(
            client, keys, owner="a", topics=["orders"], ttl=LONG, clock=WrongClock(-1)
        ) as late,
        PartitionLeases(
            client, keys, owner="b", topics=["orders"], ttl=LONG, clock=WrongClock(1)
        ) as early,
    ):
        assert late.rebalance(ORDERS) == set(ORDERS)
        early.rebalance(ORDERS)
        assert len(late.rebalance(ORDERS)) == len(early.rebalance(ORDERS)) == 3
        late.require_held(late.held())
        early.require_held(early.held())


@pytest.mark.fault("L10", "U13")
def test_leases_are_renewed_while_the_worker_works(
    join: Callable[..., PartitionLeases], etcd: EtcdServer, keys: CoordinationKeys
) -> None:
    worker = join("a", ttl=SHORT)
    worker.rebalance([FIRST])

    def expiry() -> int:
        found: int = json.loads(value_at(etcd.endpoint, keys.lease(FIRST)) or b"")[
            "lease_expires_at"
        ]
        return found

    before = expiry()
    # Work that takes longer than the lease, and never comes back to it.
    wait_until(lambda: expiry() > before + 1.2 * SHORT.total_seconds() * 1000)
    worker.require_held([FIRST])


@pytest.mark.fault("L1", "L2")
def test_a_worker_without_etcd_stops_and_another_takes_over(
    join: Callable[..., PartitionLeases],
    wire: TcpProxy,
    etcd: EtcdServer,
    keys: CoordinationKeys,
) -> None:
    lost = join("a", ttl=SHORT, endpoint=f"http://127.0.0.1:{wire.port}")
    lost.rebalance(ORDERS)
    assert lost.held() == set(ORDERS)
    other = join("b")
    # As a pause of the process does: nothing is renewed any more.
    wire.refuse_all()
    # An outage that is shorter than the lease does no harm.
    lost.require_held(ORDERS)
    wait_until(lambda: not lost.held())
    wait_until(lambda: other.rebalance(ORDERS) == set(ORDERS))
    wire.allow_all()
    with pytest.raises(LeaseLostError, match="orders/0"):
        lost.require_held([FIRST])
    with pytest.raises(LeaseLostError):
        offsets_of(lost, etcd, keys).write({FIRST: 7})
    assert value_at(etcd.endpoint, keys.offset(FIRST)) is None
    # It takes part again, and deletes nothing of the other's.
    wait_until(lambda: lost.rebalance(ORDERS) == frozenset() and len(other.rebalance(ORDERS)) == 3)
    assert lost.rebalance(ORDERS) == set(ORDERS) - other.held()


@pytest.mark.fault("L4", "U12")
def test_leaving_deletes_no_key_of_another(
    join: Callable[..., PartitionLeases], etcd: EtcdServer, keys: CoordinationKeys
) -> None:
    worker = join("a")
    worker.rebalance(ORDERS)
    delete_and_claim(etcd.endpoint, keys.lease(FIRST))
    write_over(etcd.endpoint, keys.lease(ORDERS[1]))
    theirs = [value_at(etcd.endpoint, keys.lease(each)) for each in ORDERS[:2]]
    with pytest.raises(LeaseLostError, match="orders/0, orders/1 was"):
        worker.require_held(ORDERS)
    assert worker.held() == set(ORDERS[2:])
    worker.rebalance(())
    worker.close()
    assert [value_at(etcd.endpoint, keys.lease(each)) for each in ORDERS[:2]] == theirs
    assert value_at(etcd.endpoint, keys.lease(ORDERS[2])) is None


def delete_and_claim(endpoint: str, key: str) -> None:
    """As a processor does that lost its lease, and then another one."""
    request(endpoint, "kv/deleterange", key=encode(key))
    assert claim_as_processor(endpoint, key) is not None


def write_over(endpoint: str, key: str) -> None:
    """As a processor does that renews a claim which was deleted meanwhile."""
    put(endpoint, key, b"theirs", lease=request(endpoint, "lease/grant", TTL=60)["ID"])


@pytest.mark.fault("L4", "L5")
@pytest.mark.parametrize("replace", [delete_and_claim, write_over])
@pytest.mark.fault("U12")
def test_no_offset_is_written_for_a_claim_that_was_replaced_unseen(
    join: Callable[..., PartitionLeases],
    etcd: EtcdServer,
    keys: CoordinationKeys,
    replace: Callable[[str, str], None],
) -> None:
    worker = join("a")
    worker.rebalance(ORDERS)
    replace(etcd.endpoint, keys.lease(FIRST))
    assert FIRST in worker.held(), "the worker cannot know it yet"
    with pytest.raises(LeaseLostError, match="orders/0 was"):
        offsets_of(worker, etcd, keys).write({FIRST: 7, ORDERS[1]: 8})
    assert value_at(etcd.endpoint, keys.offset(FIRST)) is None
    assert json.loads(value_at(etcd.endpoint, keys.offset(ORDERS[1])) or b"")["offset"] == 8


@pytest.mark.parametrize("replace", [delete_and_claim, write_over])
def test_a_claim_that_was_replaced_is_noticed_by_its_renewal(
    join: Callable[..., PartitionLeases],
    etcd: EtcdServer,
    keys: CoordinationKeys,
    replace: Callable[[str, str], None],
) -> None:
    worker = join("a", ttl=SHORT)
    worker.rebalance(ORDERS)
    replace(etcd.endpoint, keys.lease(FIRST))
    theirs = value_at(etcd.endpoint, keys.lease(FIRST))
    wait_until(lambda: worker.held() == set(ORDERS[1:]))
    assert value_at(etcd.endpoint, keys.lease(FIRST)) == theirs


@pytest.mark.fault("L7")
def test_a_claim_whose_answer_was_lost_is_found_again(
    join: Callable[..., PartitionLeases], etcd: EtcdServer
) -> None:
    with HttpProxy(etcd.endpoint) as proxy:
        proxy.script(lambda _method, _path, body: b"VERSION" in body, LoseReply())
        worker = join("a", endpoint=proxy.url)
        with pytest.raises(SourceUnavailableError):
            worker.rebalance(ORDERS)
        assert worker.held() == frozenset()
        assert worker.rebalance(ORDERS) == set(ORDERS)
        worker.require_held(ORDERS)


@pytest.mark.fault("L7", "U12")
def test_a_release_that_arrives_late_does_not_end_the_claim_after_it(
    join: Callable[..., PartitionLeases], etcd: EtcdServer, keys: CoordinationKeys
) -> None:
    with HttpProxy(etcd.endpoint) as proxy:
        proxy.script(
            lambda _method, _path, body: b"request_delete_range" in body, HoldUntilReleased("late")
        )
        worker = join("a", endpoint=proxy.url)
        worker.rebalance(ORDERS)
        with pytest.raises(SourceUnavailableError):
            worker.rebalance(ORDERS[1:])
        request(etcd.endpoint, "kv/deleterange", key=encode(keys.lease(FIRST)))
        assert worker.rebalance(ORDERS) == set(ORDERS)
        proxy.release("late")
        worker.require_held(ORDERS)


def test_offsets_and_watermarks_are_written_as_the_processor_writes_them(
    join: Callable[..., PartitionLeases], etcd: EtcdServer, keys: CoordinationKeys
) -> None:
    worker = join("a")
    worker.rebalance(ORDERS)
    offsets = offsets_of(worker, etcd, keys)
    assert offsets.load(ORDERS) == dict.fromkeys(ORDERS, -1)
    assert offsets.write({ORDERS[0]: 40, ORDERS[1]: 12}) == {}
    prefix, endpoint = keys.prefix, etcd.endpoint
    value = value_at(endpoint, f"{prefix}/offsets/orders/0")
    assert value is not None
    assert list(json.loads(value)) == ["offset", "last_timestamp_ms", "updated_at"]
    assert value_at(endpoint, f"{prefix}/watermarks/orders/0") == value
    smallest = value_at(endpoint, f"{prefix}/watermarks/orders/1")
    assert value_at(endpoint, f"{prefix}/watermarks/orders") == smallest
    offsets.write({ORDERS[1]: 50})
    assert value_at(endpoint, f"{prefix}/watermarks/orders") == value
    assert offsets.load(ORDERS[:3]) == {ORDERS[0]: 40, ORDERS[1]: 50, ORDERS[2]: -1}


def test_a_topics_watermark_is_not_overwritten_by_what_was_read_before(
    join: Callable[..., PartitionLeases], etcd: EtcdServer, keys: CoordinationKeys
) -> None:
    worker = join("a")
    worker.rebalance(ORDERS)
    offsets = offsets_of(worker, etcd, keys)
    offsets.write({ORDERS[0]: 2, ORDERS[1]: 3})
    with HttpProxy(etcd.endpoint) as proxy:
        proxy.script(lambda _method, _path, body: b"LESS" in body, HoldUntilReleased("watermark"))
        slow = PartitionOffsets(Etcd([proxy.url], timeout_seconds=60), keys, worker)
        writing = threading.Thread(target=slow.write, args=({ORDERS[0]: 5},))
        writing.start()
        proxy.wait_withheld("watermark")
        offsets.write({ORDERS[1]: 10})
        proxy.release("watermark")
        writing.join(60)
    watermark = value_at(etcd.endpoint, keys.topic_watermark("orders"))
    assert watermark == value_at(etcd.endpoint, keys.watermark(ORDERS[0]))


@pytest.mark.fault("L6", "U12")
def test_an_offset_never_moves_back(
    join: Callable[..., PartitionLeases], etcd: EtcdServer, keys: CoordinationKeys
) -> None:
    worker = join("a")
    worker.rebalance(ORDERS)
    offsets = offsets_of(worker, etcd, keys)
    put(etcd.endpoint, keys.offset(FIRST), offset_value(100, now_ms=1))
    assert offsets.write({FIRST: 99, ORDERS[1]: 3}) == {FIRST: 100}
    assert offsets.write({FIRST: 100}) == {}
    assert value_at(etcd.endpoint, keys.offset(FIRST)) == offset_value(100, now_ms=1)
    assert offsets.load([FIRST, ORDERS[1]]) == {FIRST: 100, ORDERS[1]: 3}


def test_more_partitions_than_fit_into_one_request_are_served(
    join: Callable[..., PartitionLeases], etcd: EtcdServer, keys: CoordinationKeys
) -> None:
    many = [TopicPartition("orders", number) for number in range(300)]
    worker = join("a", ttl=SHORT)
    assert worker.rebalance(many) == set(many)
    offsets_of(worker, etcd, keys).write({each: each.partition for each in many})
    assert offsets_of(worker, etcd, keys).load(many) == {each: each.partition for each in many}
    worker.require_held(many)
    assert len(join("b").rebalance(many)) == 0
    assert len(worker.rebalance(many)) == 150
    counted = Counter(event.value is None for event in history(etcd.endpoint, keys.leases))
    assert counted[True] == 150
