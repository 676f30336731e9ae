"""Several processes on one table and one ledger: none loses, doubles or undoes anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.errors import UnrepresentableValueError
from frazil.ledger.table_state import Copying, Paused, Streaming
from tests.support.ingest.shared_workers import ORDERS, POINTS, USERS, Workers, die, workers
from tests.support.sampling import examples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

A, B = "a", "b"
U0, U1, O0, O1 = f"{USERS}/0", f"{USERS}/1", f"{ORDERS}/0", f"{ORDERS}/1"


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Workers]:
    with workers(monkeypatch) as made:
        yield made


def both_begun(shared: Workers) -> None:
    """One process has the first partition of each topic, the other one the rest."""
    shared.start(A, most_partitions=4)
    shared.start(B, most_partitions=4)
    for each in (U0, O0):
        shared.topics.lease(each, A)
    for each in (U1, O1):
        shared.topics.lease(each, B)
    for each in (A, B) * 2:
        shared.step(each)
    for partition in (U0, U1):
        shared.produce(partition)
    for each in (A, B):
        assert shared.step(each) is not None


def test_a_live_table_appears_with_its_first_commit_whoever_makes_it(shared: Workers) -> None:
    both_begun(shared)
    assert set(shared.changelogs) == {USERS}
    states = {each.table: each for each in shared.ledger.table_states()}
    assert states[USERS].identity
    assert not states[ORDERS].identity, "nothing of it was captured"
    shared.finish()
    shared.check()


def test_a_changelog_that_is_lost_is_not_taken_for_a_new_one(shared: Workers) -> None:
    both_begun(shared)
    del shared.changelogs[USERS]
    shared.running[A].stop()
    shared.produce(U0)
    shared.step(A)
    state = shared.running[A].table_states[USERS].state
    assert isinstance(state, Paused)
    assert USERS not in shared.changelogs


@pytest.mark.parametrize("point", POINTS)
def test_processes_step_in_between(shared: Workers, point: str) -> None:
    both_begun(shared)
    for partition in (U0, U1, O0, O1):
        shared.produce(partition, 2)
    shared.meanwhile[point] = lambda: shared.step(B)
    shared.step(A)
    assert point in shared.passed
    shared.finish()
    shared.check()


@pytest.mark.parametrize("point", POINTS)
def test_a_process_dies_and_the_other_one_takes_its_partitions(shared: Workers, point: str) -> None:
    both_begun(shared)
    shared.produce(U0, 2)
    shared.meanwhile[point] = die
    shared.step(A)
    assert A not in shared.running
    shared.topics.end_lease(U0, O0)
    shared.produce(U0)
    for _ in range(4):
        shared.step(B)
    assert len(shared.changelogs[USERS].rows) == 5, "the other one does not wait for anything"
    shared.finish()
    shared.check()


@pytest.mark.parametrize("point", POINTS)
def test_a_lease_that_is_lost_in_a_step_commits_nothing_twice(shared: Workers, point: str) -> None:
    both_begun(shared)
    shared.produce(U0, 2)

    def lose() -> None:
        shared.topics.end_lease(U0)
        shared.topics.lease(U0, B)
        shared.produce(U0)
        for _ in range(2):
            shared.step(B)

    shared.meanwhile[point] = lose
    shared.step(A)
    shared.step(A)
    shared.finish()
    shared.check()


def test_a_process_without_a_lease_commits_nothing_even_if_nobody_else_has_it(
    shared: Workers,
) -> None:
    both_begun(shared)
    shared.produce(U0)
    shared.meanwhile["ingest.planned"] = lambda: shared.topics.end_lease(U0)
    assert shared.step(A) is None
    assert len(shared.changelogs[USERS].rows) == 2
    shared.finish()
    shared.check()


def test_a_process_that_starts_undoes_nothing_of_one_that_has_begun(shared: Workers) -> None:
    shared.produce(U0)

    def begin() -> None:
        for _ in range(3):
            shared.step(B)

    # It has read that nothing was ever captured.
    shared.meanwhile["discover"] = begin
    shared.start(A).start()
    acknowledged = shared.ledger.acknowledged()
    assert acknowledged is not None
    assert acknowledged.position == {U0: 1, U1: 0, O0: 0, O1: 0}


def test_the_ledger_never_goes_back_behind_another_process(shared: Workers) -> None:
    both_begun(shared)
    shared.produce(U0)

    def overtake() -> None:
        shared.topics.end_lease(U0)
        shared.topics.lease(U0, B)
        shared.produce(U0)
        # The first one finds that the table has moved, the second one goes on.
        for _ in range(3):
            shared.step(B)

    # The table is committed, and the ledger is not.
    shared.meanwhile["ledger"] = overtake
    shared.step(A)
    acknowledged = shared.ledger.acknowledged()
    assert acknowledged is not None
    assert acknowledged.position[U0] == 3  # type: ignore[index]
    assert shared.topics.partitions[U0].acknowledged == 3


def test_rows_of_the_ledger_are_not_read_again_because_another_process_moved_it(
    shared: Workers,
) -> None:
    both_begun(shared)
    shared.step(A)
    before = shared.ledger.reads
    for _ in range(5):
        for partition, worker in ((U0, A), (U1, B)):
            shared.produce(partition)
            assert shared.step(worker) is not None
    assert shared.ledger.reads <= before + 1, "the other one reads that the table began"
    shared.resync(USERS)
    shared.step(A)
    assert shared.running[A].table_states[USERS].state == Copying()


def test_a_table_that_fails_holds_its_own_partitions_only(shared: Workers) -> None:
    both_begun(shared)
    shared.topics.produce(U0, {}, error=UnrepresentableValueError("spoilt"))
    shared.produce(O0)
    shared.step(A)
    assert isinstance(shared.running[A].table_states[USERS].state, Paused)
    for partition in (U0, O0, O1):
        shared.produce(partition, 2)
    for each in (A, B):
        shared.step(each)
    offsets = {name: each.acknowledged for name, each in shared.topics.partitions.items()}
    assert offsets == {U0: 1, U1: 1, O0: 3, O1: 2}
    assert isinstance(shared.running[B].table_states[USERS].state, Paused), "both know"


@pytest.mark.fault("U2")
def test_a_record_that_does_not_decode_stops_its_partition_there_and_nothing_else(
    shared: Workers,
) -> None:
    both_begun(shared)
    shared.produce(U0)
    shared.damage(U0)
    for partition in (U0, U1, O0):
        shared.produce(partition)
    for each in (A, A, B):
        shared.step(each)
    offsets = {name: each.acknowledged for name, each in shared.topics.partitions.items()}
    assert offsets == {U0: 2, U1: 2, O0: 1, O1: 0}
    assert set(shared.running[A].stopped_partitions) == {U0}
    assert not shared.running[B].stopped_partitions
    assert all(isinstance(each.state, Streaming) for each in shared.ledger.table_states())
    # Its topic goes on elsewhere, with this process too.
    shared.topics.end_lease(U1)
    shared.topics.lease(U1, A)
    shared.produce(U1)
    # Where the table is by now is found with the first attempt.
    for _ in range(2):
        shared.step(A)
    assert shared.topics.partitions[U1].acknowledged == 3
    # The next process meets the same.
    worker = shared.finish()
    assert set(worker.stopped_partitions) == {U0}
    assert shared.topics.partitions[U0].acknowledged == 2


@pytest.mark.fault("U25")
def test_a_gap_that_is_filled_later_lets_its_partition_go_on_by_itself(shared: Workers) -> None:
    both_begun(shared)
    shared.produce(U0, 2)
    log = shared.topics.partitions[U0]
    kept = log.begins, list(log.records)
    log.expire(log.ends)
    shared.step(A)
    assert set(shared.running[A].stopped_partitions) == {U0}
    log.begins, log.records = kept
    shared.step(A)
    assert not shared.running[A].stopped_partitions
    assert log.acknowledged == log.ends


def test_a_gap_stops_its_partition_until_a_resync_passes_it(shared: Workers) -> None:
    both_begun(shared)
    shared.produce(U0, 2)
    shared.produce(U1)
    log = shared.topics.partitions[U0]
    log.expire(log.ends)
    for each in (A, B):
        shared.step(each)
    assert set(shared.running[A].stopped_partitions) == {U0}
    assert shared.topics.partitions[U1].acknowledged == 2
    shared.resync(USERS)
    shared.produce(U0)
    for _ in range(3):
        shared.step(B)
        shared.step(A)
    assert not shared.running[A].stopped_partitions
    assert shared.topics.partitions[U0].acknowledged == 4


def test_a_pause_is_not_undone_by_a_state_that_was_decided_before(shared: Workers) -> None:
    """One process fails with the first batch of a table, with which the other one begins it."""
    both_begun(shared)
    shared.topics.produce(O0, {}, error=UnrepresentableValueError("spoilt"))
    shared.produce(O1)
    # The other one has read the ledger by then, and will write that the table began.
    shared.meanwhile["ledger"] = lambda: shared.step(A)
    shared.step(B)
    (state,) = [each for each in shared.ledger.table_states() if each.table == ORDERS]
    assert isinstance(state.state, Paused)


def test_a_resync_is_not_undone_by_a_process_that_starts(shared: Workers) -> None:
    both_begun(shared)
    shared.topics.produce(U0, {}, error=UnrepresentableValueError("spoilt"))
    shared.step(A)
    assert isinstance(shared.running[A].table_states[USERS].state, Paused)
    # It has read that the table is paused, and tries it again.
    shared.start("c")
    shared.meanwhile["ledger"] = lambda: shared.resync(USERS)
    assert shared.step("c") is None
    (state,) = [each for each in shared.ledger.table_states() if each.table == USERS]
    assert state.state == Copying()


def test_a_state_is_written_while_another_process_moves_the_ledger(shared: Workers) -> None:
    both_begun(shared)
    shared.topics.produce(U0, {}, error=UnrepresentableValueError("spoilt"))
    shared.produce(O1)
    shared.step(B)
    shared.produce(O1)
    shared.meanwhile["ledger"] = lambda: shared.step(B)
    assert shared.step(A) is not None, "its batch must not be read again for that"
    assert isinstance(shared.running[A].table_states[USERS].state, Paused)
    assert shared.topics.partitions[O1].acknowledged == 2


@pytest.mark.parametrize("point", POINTS)
def test_a_resync_while_both_work_restarts_once_at_the_oldest_record(
    monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    with workers(monkeypatch, forgets=False) as shared:
        both_begun(shared)
        for partition in (U0, U1):
            shared.produce(partition, 2)

        def resync() -> None:
            shared.resync(USERS)
            shared.step(B)
            shared.step(B)

        shared.meanwhile[point] = resync
        for each in (A, B, A, B, A, B):
            shared.step(each)
        worker = shared.finish()
        assert worker.table_states[USERS].state == Streaming()
        marker = shared.changelogs[USERS].marker
        assert marker is not None
        assert marker.epoch == 1
        shared.check()


def test_a_resync_takes_back_what_may_be_acknowledged(shared: Workers) -> None:
    """Else the next process would let the source forget what the table needs again."""
    both_begun(shared)
    shared.produce(U0, 2)
    shared.meanwhile["ingest.recorded"] = die
    shared.step(A)
    assert shared.topics.partitions[U0].acknowledged == 1
    shared.resync(USERS)
    worker = shared.finish()
    assert worker.table_states[USERS].state == Streaming()
    table = shared.changelogs[USERS]
    assert [row[1] for row in table.rows if row[0] == 1] == [f"{U0}@1", f"{U0}@2"]


def test_what_a_resync_may_need_is_not_acknowledged_any_more(shared: Workers) -> None:
    both_begun(shared)
    for partition in (U0, O0):
        shared.produce(partition)
    shared.meanwhile["ingest.committed"] = lambda: shared.resync(USERS)
    shared.step(A)
    assert shared.topics.partitions[U0].acknowledged == 1
    assert shared.topics.partitions[O0].acknowledged == 1


def test_a_resync_of_what_was_never_captured_begins_it(shared: Workers) -> None:
    both_begun(shared)
    shared.resync(ORDERS)
    shared.produce(O0)
    for _ in range(2):
        shared.step(A)
    assert Copying() not in {each.state for each in shared.ledger.table_states()}
    shared.finish()
    shared.check()


def test_a_gap_is_believed_only_if_the_table_says_so_too(shared: Workers) -> None:
    """The other process captured it, and let the source forget it, in between."""
    both_begun(shared)
    source, plan = shared.sources[A], shared.sources[A].plan

    def late(progress: object, limit: object) -> object:
        source.plan = plan  # type: ignore[method-assign]
        shared.produce(U1)
        shared.step(B)
        shared.topics.end_lease(U1)
        shared.topics.lease(U1, A)
        return plan(progress, limit)  # type: ignore[arg-type]

    source.plan = late  # type: ignore[method-assign,assignment]
    shared.step(A)
    assert all(isinstance(each.state, Streaming) for each in shared.ledger.table_states())
    shared.finish()
    shared.check()


# --- by chance ---

_names = st.sampled_from((A, B, "c"))
_partitions = st.sampled_from((U0, U1, O0, O1))


@dataclass(frozen=True)
class Produce:
    partition: str
    count: int


@dataclass(frozen=True)
class Damage:
    partition: str


@dataclass(frozen=True)
class EndLease:
    partition: str


@dataclass(frozen=True)
class Resync:
    topic: str


@dataclass(frozen=True)
class Die:
    pass


@dataclass(frozen=True)
class AddPartition:
    topic: str


@dataclass(frozen=True)
class Step:
    """A step, and what happens at some of its points."""

    worker: str
    meanwhile: dict[str, list[object]]


_simple = st.one_of(
    st.builds(Produce, _partitions, st.integers(1, 3)),
    st.builds(EndLease, _partitions),
    st.builds(EndLease, _partitions),
    st.builds(Damage, _partitions),
    st.builds(Resync, st.sampled_from((USERS, ORDERS))),
    st.builds(AddPartition, st.sampled_from((USERS, ORDERS))),
)
_steps: st.SearchStrategy[Step] = st.deferred(
    lambda: st.builds(
        Step,
        _names,
        st.dictionaries(
            st.sampled_from(POINTS),
            st.lists(st.one_of(_simple, st.builds(Die), _steps), max_size=2),
            max_size=2,
        ),
    )
)
histories = st.lists(st.one_of(_simple, _steps, _steps), max_size=25)


class Player:
    def __init__(self, shared: Workers, *, resyncs: bool) -> None:
        self.shared = shared
        self.resyncs = resyncs
        self.busy: set[str] = set()

    def do(self, step: object) -> None:
        shared = self.shared
        match step:
            case Produce(partition, count):
                shared.produce(partition, count)
            case EndLease(partition):
                shared.topics.end_lease(partition)
            case Damage(partition):
                shared.damage(partition)
            case AddPartition(topic):
                shared.topics.add_partitions(topic, 1)
                shared.produce(shared.topics.of_topic(topic)[-1].name)
            case Resync(topic) if self.resyncs:
                shared.resync(topic)
            case Die():
                die()
            # A process does one thing at a time.
            case Step(worker, meanwhile) if worker not in self.busy:
                self.step(worker, meanwhile)

    def step(self, worker: str, meanwhile: dict[str, list[object]]) -> None:
        outer = self.shared.meanwhile
        self.busy.add(worker)
        self.shared.meanwhile = {point: self.all_of(steps) for point, steps in meanwhile.items()}
        try:
            self.shared.step(worker)
        finally:
            self.shared.meanwhile = outer
            self.busy.discard(worker)

    def all_of(self, steps: list[object]) -> Callable[[], None]:
        def act() -> None:
            for each in steps:
                self.do(each)

        return act


@pytest.mark.parametrize("resyncs", [False, True])
@examples(300)
@given(history=histories)
@pytest.mark.fault("U3")
def test_whatever_happens_every_record_is_captured_once(
    *, resyncs: bool, history: list[object]
) -> None:
    with (
        pytest.MonkeyPatch.context() as monkeypatch,
        workers(monkeypatch, forgets=not resyncs) as shared,
    ):
        player = Player(shared, resyncs=resyncs)
        for each in history:
            player.do(each)
        shared.finish()
        shared.check()
