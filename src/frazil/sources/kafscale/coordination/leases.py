"""The partitions that this worker may work on, claimed in etcd.

A worker has one lease, and its key among the workers and its claims on partitions belong to it:
they end together when the worker dies, and one request renews them all. Etcd deletes the keys of a
lease and no others, so that a worker that leaves cannot take another's claim with it.

A claim only avoids work that would be refused: the marker of the table decides at the commit.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from frazil.clients.etcd.transactions import (
    DeleteKey,
    Equals,
    Fact,
    Put,
    Range,
    Txn,
    UnchangedSince,
)
from frazil.errors import FrazilError, LeaseLostError, SourceUnavailableError
from frazil.hooks import SystemClock
from frazil.sources.kafscale.coordination.keys import (
    lease_value,
    refuse_other_pipelines,
    worker_topics,
    worker_value,
)
from frazil.sources.kafscale.coordination.sharing import plan_moves
from frazil.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from datetime import timedelta
    from typing import Self

    from frazil.clients.etcd.client import Etcd
    from frazil.clients.etcd.transactions import KeyValue, Outcome
    from frazil.hooks import Clock
    from frazil.sources.kafscale.coordination.keys import CoordinationKeys
    from frazil.sources.kafscale.segments.object_keys import TopicPartition

# A lease is renewed at a third of its time: one renewal may fail. New work begins in the first two.
RENEWALS: Final = 3
_MOST_PAUSE_SECONDS: Final = 1.0
_CLOCK: Final = SystemClock()

_log = get_logger(__name__)


@dataclass(slots=True)
class _Session:
    """A lease in etcd and the claims that belong to it; ``claims`` has their create revisions."""

    lease: int
    seconds: int
    ends_at: float
    claims: dict[TopicPartition, int] = field(default_factory=dict)
    is_over: bool = False


class PartitionLeases:
    """This worker's share of the partitions; renewed by a thread of its own until it is closed.

    ``rebalance`` is called between batches, as it may release partitions. The other methods may be
    called at any time, by any thread.
    """

    def __init__(
        self,
        etcd: Etcd,
        keys: CoordinationKeys,
        *,
        owner: str,
        topics: Collection[str],
        ttl: timedelta,
        pipeline: str = "",
        clock: Clock = _CLOCK,
    ) -> None:
        self._etcd = etcd
        self._keys = keys
        self._owner = owner
        self._topics = frozenset(topics)
        self._pipeline = pipeline
        self._ttl = max(1, round(ttl.total_seconds()))
        self._clock = clock
        # Guards the session and what is in it; never held during a request.
        self._lock = threading.Lock()
        self._session: _Session | None = None
        self._first_worker: str | None = None
        self._closing = threading.Event()
        self._renewal = threading.Thread(target=self._renew_all, name="lease renewal", daemon=True)
        self._renewal.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave: other workers can claim the partitions at once."""
        self._closing.set()
        self._renewal.join(self._ttl)
        session = self._current()
        if session is None:
            return
        self._end(session)
        try:
            self._etcd.revoke_lease(session.lease)
        except FrazilError as error:
            _log.warning("leases not released, they expire", error=error.reason)

    @property
    def is_first(self) -> bool:
        """Whether this worker's name is the first of all, by the last look at them."""
        return self._first_worker == self._owner and self._current() is not None

    def held(self) -> frozenset[TopicPartition]:
        """The partitions that work may begin on."""
        with self._lock:
            session = self._session
            if session is None:
                return frozenset()
            until = session.ends_at - session.seconds / RENEWALS
            return frozenset(session.claims if self._clock.monotonic() < until else ())

    def require_held(self, partitions: Collection[TopicPartition]) -> None:
        """Raise LeaseLostError unless all are still ours; asks etcd, if that answers in time."""
        session = self._current()
        if session is not None and not self._lost(partitions):
            with suppress(SourceUnavailableError):
                self._verify(session, partitions)
        if lost := self._lost(partitions):
            message = f"the lease of {', '.join(map(str, sorted(lost)))} was lost."
            raise LeaseLostError(message)

    def fence(self, partition: TopicPartition) -> tuple[Equals, ...]:
        """What is true in etcd only while the partition is ours; empty if it is not."""
        with self._lock:
            session = self._session
            if session is None or (revision := session.claims.get(partition)) is None:
                return ()
            return self._fence(partition, session.lease, revision)

    def rebalance(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Claim our share of these partitions, release what is more, and return what is held.

        Partitions of topics that are not ours are left alone. Raises ConfigError when another
        pipeline shares them already.
        """
        if self._closing.is_set():
            return frozenset()
        try:
            known, session = frozenset(partitions), self._live_session()
            workers, claims = self._load(session)
            topics = {name: worker_topics(each.value) for name, each in workers.items()}
            topics[self._owner] = self._topics
            self._first_worker = min(topics)
            owners = {each.lease: name for name, each in workers.items()}
            owners[session.lease] = self._owner
            gone = {
                partition
                for partition, claim in claims.items()
                if claim.lease == session.lease and partition not in known
            }
            holders = self._holders((known | claims.keys()) - gone, claims, owners)
            moves = plan_moves(self._owner, topics=topics, holders=dict(holders))
            self._release(session, moves.release | gone)
            self._claim(session, moves.claim)
        except LeaseLostError:
            # The next call begins again, with a new lease.
            if (ended := self._current()) is not None:
                self._end(ended)
        return self.held()

    def _holders(
        self,
        partitions: Collection[TopicPartition],
        claims: Mapping[TopicPartition, KeyValue],
        owners: Mapping[int, str],
    ) -> Iterator[tuple[TopicPartition, str | None]]:
        """The partitions to share, also those that only others know.

        What the processor's own workers hold is not shared.
        """
        for partition in partitions:
            claim = claims.get(partition)
            if claim is None and partition.topic in self._topics:
                yield partition, None
            elif claim is not None and claim.lease in owners:
                yield partition, owners[claim.lease]

    # --- the lease ---

    def _current(self) -> _Session | None:
        with self._lock:
            session = self._session
        return session if session is not None and not session.is_over else None

    def _end(self, session: _Session) -> None:
        with self._lock:
            session.is_over = True
            session.claims.clear()

    def _live_session(self) -> _Session:
        session = self._current()
        if session is not None and self._clock.monotonic() >= session.ends_at:
            # It was not renewed in time, as when the process was paused; etcd knows.
            self._renew(session)
            session = self._current()
        if session is None:
            asked_at = self._clock.monotonic()
            lease, seconds = self._etcd.grant_lease(self._ttl)
            session = _Session(lease, seconds, asked_at + seconds)
            with self._lock:
                self._session = session
        return session

    def _renew_all(self) -> None:
        soon = min(_MOST_PAUSE_SECONDS, self._ttl / RENEWALS)
        pause, is_failing = soon, False
        while not self._closing.wait(pause):
            session, pause = self._current(), soon
            if session is None:
                continue
            try:
                self._renew(session)
                pause, is_failing = session.seconds / RENEWALS, False
            except FrazilError as error:
                if not is_failing:
                    _log.warning("lease not renewed", error=error.reason)
                is_failing = True

    def _renew(self, session: _Session) -> None:
        asked_at = self._clock.monotonic()
        seconds = self._etcd.keep_lease_alive(session.lease)
        if seconds == 0:
            _log.warning("lease lost", partitions=len(session.claims))
            self._end(session)
            return
        with self._lock:
            session.ends_at = asked_at + seconds
            claims = dict(session.claims)
        # The time in the value is for readers; writing it also shows whose claim it is.
        value = self._value(session)
        outcomes = self._etcd.commit_each(
            [
                Txn(
                    given=self._fence(partition, session.lease, revision),
                    then=[Put(self._keys.lease(partition), value, session.lease)],
                )
                for partition, revision in claims.items()
            ]
        )
        for (partition, revision), outcome in zip(claims.items(), outcomes, strict=True):
            if not outcome.succeeded:
                self._forget(session, partition, revision)

    # --- the claims ---

    def _lost(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        with self._lock:
            session = self._session
            if session is None or self._clock.monotonic() >= session.ends_at:
                return set(partitions)
            return set(partitions) - session.claims.keys()

    def _forget(self, session: _Session, partition: TopicPartition, revision: int) -> None:
        with self._lock:
            if session.claims.get(partition) == revision:
                del session.claims[partition]
                _log.warning("lease lost", partition=str(partition))

    def _load(
        self, session: _Session
    ) -> tuple[dict[str, KeyValue], dict[TopicPartition, KeyValue]]:
        """The workers and the claims of all, as of one moment; ours are then those of etcd."""
        # Whoever comes first between our look and our entry has to be looked at as well. Only a
        # worker that joins makes it fail, so that it ends.
        while True:
            view = self._look()
            workers = {each.key.removeprefix(self._keys.workers): each for each in view.found[0]}
            if self._is_entered(session, workers) or self._enter(session, workers, view.revision):
                break
        claims = {
            partition: each
            for each in view.found[1]
            if (partition := self._keys.claimed_partition(each.key)) is not None
        }
        with self._lock:
            session.claims.clear()
            if not session.is_over:
                # Also a claim whose answer was lost.
                session.claims.update(
                    (partition, each.create_revision)
                    for partition, each in claims.items()
                    if each.lease == session.lease
                )
        return workers, claims

    def _look(self) -> Outcome:
        return self._etcd.read(
            Txn(
                [
                    Range(self._keys.workers, is_prefix=True),
                    Range(self._keys.leases, is_prefix=True, only_keys=True),
                ]
            )
        )

    def _is_entered(self, session: _Session, workers: Mapping[str, KeyValue]) -> bool:
        return self._owner in workers and workers[self._owner].lease == session.lease

    def _enter(self, session: _Session, workers: Mapping[str, KeyValue], as_of: int) -> bool:
        """Join the workers, unless another one has joined them since they were read."""
        # Only who comes later is refused: whoever works goes on.
        others = [each.value for name, each in workers.items() if name != self._owner]
        refuse_other_pipelines(others, self._topics, self._pipeline, prefix=self._keys.prefix)
        value = worker_value(self._topics, self._pipeline)
        entry = Txn(
            given=[UnchangedSince(self._keys.workers, as_of)],
            then=[Put(self._keys.worker(self._owner), value, session.lease)],
        )
        return self._etcd.commit(entry).succeeded

    def _verify(self, session: _Session, partitions: Collection[TopicPartition]) -> None:
        reads = [Range(self._keys.lease(each), only_keys=True) for each in partitions]
        for partition, keys in zip(partitions, self._etcd.read_each(reads), strict=True):
            revision = session.claims.get(partition)
            is_ours = any(
                each.lease == session.lease and each.create_revision == revision for each in keys
            )
            if revision is not None and not is_ours:
                self._forget(session, partition, revision)

    def _claim(self, session: _Session, partitions: Collection[TopicPartition]) -> None:
        value = self._value(session)
        outcomes = self._etcd.commit_each(
            [
                Txn(
                    given=[Equals(self._keys.lease(each), Fact.VERSION, 0)],
                    then=[Put(self._keys.lease(each), value, session.lease)],
                )
                for each in partitions
            ]
        )
        with self._lock:
            if not session.is_over:
                session.claims.update(
                    (partition, outcome.revision)
                    for partition, outcome in zip(partitions, outcomes, strict=True)
                    if outcome.succeeded
                )

    def _release(self, session: _Session, partitions: Collection[TopicPartition]) -> None:
        with self._lock:
            # Before it is released, so that nobody works on what another one may have.
            released = {
                partition: revision
                for partition in partitions
                if (revision := session.claims.pop(partition, None)) is not None
            }
        self._etcd.commit_each(
            [
                Txn(
                    given=self._fence(partition, session.lease, revision),
                    then=[DeleteKey(self._keys.lease(partition))],
                )
                for partition, revision in released.items()
            ]
        )

    def _fence(self, partition: TopicPartition, lease: int, revision: int) -> tuple[Equals, ...]:
        key = self._keys.lease(partition)
        # The processor's renewal may write over a claim, which leaves its create revision as it is.
        return (Equals(key, Fact.CREATE_REVISION, revision), Equals(key, Fact.LEASE, lease))

    def _value(self, session: _Session) -> bytes:
        now = self._clock.now().timestamp()
        return lease_value(self._owner, expires_at_ms=int((now + session.seconds) * 1000))
