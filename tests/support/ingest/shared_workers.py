"""Several processes that ingest the same topics, without Spark: only files and tables are memory.

Whatever they do is done by the ingester, its ledger's rules and the rule of markers. At each named
point of a step something else may happen: another process makes a step, leases end, or the process
itself does.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from frazil.errors import (
    CommitConflictError,
    FencedError,
    MalformedChangeError,
    MarkerLostError,
)
from frazil.hooks import InjectedFault
from frazil.ingest import batch_run, ingester
from frazil.ingest.captured_table import CapturedPosition, Prepared
from frazil.ingest.ingester import Ingester
from frazil.ingest.settings import IngestSettings
from frazil.ingest.task import TableWritten, TaskOutcome
from frazil.ledger.table import STATES_KEY, Ledger
from frazil.ledger.table_state import Copying, Removed, TableState
from frazil.model.marker import (
    Allowed,
    AlreadyDone,
    Lost,
    Marker,
    MarkerMove,
    MarkerRole,
    Override,
    SnapshotRef,
    judge_move,
)
from frazil.model.policy import OnWiden
from frazil.model.schema.types import Primitive
from frazil.model.table_facts import SnapshotOperation
from frazil.pipeline.recovery import may_pass
from frazil.sources.protocol import (
    ChangeColumn,
    Limit,
    PartitionFailure,
    TableFailure,
    TableRows,
)
from frazil.testing.in_memory_topic_source import InMemoryTopicSource
from frazil.testing.in_memory_topics import InMemoryTopics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pytest

    from frazil.ingest.report import BatchReport
    from frazil.model.source_table import SourceTable
    from frazil.sources.protocol import Batch, TablePart

USERS, ORDERS = "shop.users", "shop.orders"
TOPICS = (USERS, ORDERS)

# Where something else may happen in a step, in the order of the step.
POINTS = (
    "ingest.planned",
    "ingest.written",
    "ingest.committed",
    "discover",
    "ledger",
    "ingest.recorded",
    "ingest.acknowledged",
)


def _committed(found: Marker | None, move: MarkerMove | Override) -> Marker | None:
    """The marker after a commit, None if it is there already; raises as a table does."""
    if isinstance(move, Override):
        return move.goal
    match judge_move(found, move):
        case Allowed(marker):
            return marker
        case AlreadyDone():
            return None
        case Lost():
            raise MarkerLostError("none")
        case refused:
            message = f"{move.goal.position} is not what follows: {refused}"
            raise FencedError(message)


@dataclass
class Changelog:
    """A changelog: its marker, and the epoch, partition, offset and value of every row."""

    marker: Marker | None = None
    rows: list[tuple[int, str, object]] = field(default_factory=list)
    commits: int = 0


class MemoryTable:
    """A changelog as one process sees it."""

    name = "changelog"
    on_widen = OnWiden.VERIFY

    def __init__(self, changelogs: dict[str, Changelog], table: str, source: str) -> None:
        self._changelogs = changelogs
        self._table = table
        self._source = source

    def load_position(self, *_whose: object) -> CapturedPosition | None:
        found = self._changelogs.get(self._table)
        if found is None or found.marker is None:
            return None
        return CapturedPosition(
            position=found.marker.position, epoch=found.marker.epoch, shape="id,name"
        )

    def prepare(self, part: TablePart) -> Prepared:
        found = self._changelogs.setdefault(self._table, Changelog()).marker
        epoch = 0 if found is None else found.epoch + (part.restart is not None)
        plan: Any = SimpleNamespace(widened=(), changes=(), evolves=False)
        none: Any = None
        seen: Any = found
        return Prepared(
            part=part,
            plan=plan,
            changelog=none,
            target=none,
            epoch=epoch,
            seen=seen,
            has_rows=False,
            has_new_columns=False,
        )

    def commit(self, prepared: Prepared, files: Sequence[Any], *, batch: str) -> Any:
        table, part = self._changelogs[self._table], prepared.part
        goal = Marker(
            pipeline="p",
            source=self._source,
            position=part.goal,
            batch=batch,
            epoch=prepared.epoch,
        )
        move: MarkerMove | Override = MarkerMove(MarkerRole.INGEST, part.start, goal)
        if part.restart is not None:
            seen: Any = prepared.seen
            if table.marker != seen:
                raise CommitConflictError("the marker was moved by another process.")
            move = Override(MarkerRole.INGEST, None, goal)
        moved = _committed(table.marker, move)
        if moved is not None:
            table.commits += 1
            snapshot = SnapshotRef(table.commits, table.commits)
            table.marker = moved.written_by(snapshot)
            table.rows += [(prepared.epoch, *row) for file in files for row in file.rows]
        return SimpleNamespace(marker=table.marker)


class MemoryLedger(Ledger):
    """The rules of the ledger over a marker and a list of rows."""

    def __init__(self, before_write: Callable[[], None]) -> None:
        self._marker: Marker | None = None
        self._states: dict[str, TableState] = {}
        self._commits = 0
        self._snapshots: list[Any] = []
        self.reads = 0
        self.history: list[TableState] = []
        self.before_write = before_write
        head = self._head
        memory: Any = SimpleNamespace(
            name="ledger",
            load_state=lambda: SimpleNamespace(head=head()),
            load_marker=lambda _role: self._marker,
            iter_ancestry=lambda: reversed(self._snapshots),
        )
        super().__init__(memory)

    def table_states(self) -> tuple[TableState, ...]:
        self.reads += 1
        return tuple(self._states.values())

    def _head(self) -> SnapshotRef | None:
        return SnapshotRef(self._commits, self._commits) if self._commits else None

    def _write(self, decide: Any, entries: Any, table_states: Any, *, batch: str) -> Any:  # noqa: ARG002
        self.before_write()
        # Whoever is overtaken here decides again, as after a conflict in the catalog.
        state = SimpleNamespace(head=self._head(), properties={})
        moved = _committed(self._marker, decide(state, self._marker))
        if moved is not None:
            self._commits += 1
            self._marker = moved.written_by(SnapshotRef(self._commits, self._commits))
            summary = {STATES_KEY: str(len(table_states))}
            self._snapshots.append(
                SimpleNamespace(
                    id=self._commits, summary=summary, operation=SnapshotOperation.APPEND
                )
            )
            self.history += table_states
            for each in table_states:
                self._states[each.table] = each
                if isinstance(each.state, Removed):
                    del self._states[each.table]
        return SimpleNamespace(marker=self._marker)


class WatchedSource(InMemoryTopicSource):
    """A source during whose discovery something else may happen."""

    while_discovering: Callable[[], None] = staticmethod(lambda: None)

    def discover(self) -> tuple[SourceTable, ...]:
        self.while_discovering()
        return super().discover()


class MemoryIngester(Ingester):
    """An ingester whose changelogs are memory."""

    changelogs: dict[str, Changelog]

    def _new_table(self, name: str) -> Any:
        return MemoryTable(self.changelogs, name, self._source.identity)


def read_batch(
    _session: object, batch: Batch, *_others: object, **_more: object
) -> tuple[Any, ...]:
    """The tasks of a batch, one for each split."""
    return tuple(_task(batch, split) for split in batch.splits)


def _task(batch: Batch, split: Any) -> TaskOutcome:
    written, failures, stopped = {}, {}, []
    for reading in batch.reader.read(split):
        if isinstance(reading, PartitionFailure):
            stopped.append(reading)
            continue
        if isinstance(reading, TableFailure):
            failures[reading.table] = reading.error
        if not isinstance(reading, TableRows):
            continue
        rows = reading.rows.to_pylist()
        file: Any = SimpleNamespace(
            size=1, rows=[(row[ChangeColumn.ORIGIN], row["1"]) for row in rows]
        )
        written[reading.table] = TableWritten(files=(file,), operations={"INSERT": len(rows)})
    return TaskOutcome(written=written, failures=failures, stopped=tuple(stopped))


class Workers:
    """Processes by name on the same topics, ledger and changelogs.

    ``meanwhile`` is what happens when the step that runs passes a point the next time: each entry
    is taken out and called. ``passed`` are the points that it passed.
    """

    def __init__(self, *, forgets: bool = True, partitions: int = 2) -> None:
        self.topics = InMemoryTopics(forgets=forgets)
        self.changelogs: dict[str, Changelog] = {}
        self.ledger = MemoryLedger(lambda: self.pass_point("ledger"))
        self.meanwhile: dict[str, Callable[[], object]] = {}
        self.passed: list[str] = []
        self.running: dict[str, MemoryIngester] = {}
        self.sources: dict[str, WatchedSource] = {}
        self.damaged: dict[str, int] = {}
        self._made = 0
        for topic in TOPICS:
            columns = {"id": Primitive.LONG, "name": Primitive.STRING}
            self.topics.add_topic(topic, columns, partitions=partitions)

    def pass_point(self, point: str) -> None:
        self.passed.append(point)
        action = self.meanwhile.pop(point, None)
        if action is not None:
            action()

    def start(self, name: str, *, most_partitions: int | None = None) -> MemoryIngester:
        """A new process; one of this name has ended."""
        source = WatchedSource(self.topics, worker=name, most_partitions=most_partitions)
        source.while_discovering = lambda: self.pass_point("discover")
        none: Any = None
        made = MemoryIngester(
            none,
            none,
            source,
            self.ledger,
            settings=IngestSettings(
                pipeline="p", limit=Limit(3, 1 << 20), held_bytes=0, may_pass=may_pass
            ),
            captures=none,
        )
        made.changelogs = self.changelogs
        self.running[name], self.sources[name] = made, source
        return made

    def produce(self, partition: str, count: int = 1) -> None:
        for _ in range(count):
            self._made += 1
            self.topics.produce(partition, {"id": self._made, "name": "new"})

    def damage(self, partition: str) -> None:
        """A record that does not decode: its partition stops there."""
        self.damaged.setdefault(partition, self.topics.partitions[partition].ends)
        self.topics.produce(partition, {}, error=MalformedChangeError("cut short"))

    def step(self, name: str) -> BatchReport | None:
        """A step of a process as its loop makes it; one that dies or is overtaken starts again."""
        worker = self.running.get(name) or self.start(name)
        try:
            if worker.tables_to_copy:
                worker.copy_tables()
            return worker.step()
        except CommitConflictError:
            # The loop tries again, at once.
            return None
        except InjectedFault:
            del self.running[name]
            return None

    def resync(self, topic: str) -> None:
        """What ``frazil resync`` writes; refused for what was not captured yet."""
        found = [each for each in self.ledger.table_states() if each.table == topic]
        if found:
            again = [replace(each, state=Copying()) for each in found]
            self.ledger.note([], pipeline="p", batch=f"resync {topic}", table_states=again)

    def finish(self, name: str = "last") -> MemoryIngester:
        """Every process has ended, and one more takes all that is left."""
        self.meanwhile.clear()
        self.running.clear()
        self.topics.end_lease(*self.topics.partitions)
        worker = self.start(name)
        for _ in range(100):
            copied = worker.copy_tables() if worker.tables_to_copy else None
            if worker.step() is None and copied is None and not worker.tables_to_copy:
                return worker
        raise AssertionError("it never comes to its end")

    def check(self) -> None:
        """Nothing is lost, nothing is twice, and the ledger and the source follow the tables."""
        acknowledged = self.ledger.acknowledged()
        for topic in TOPICS:
            partitions = self.topics.of_topic(topic)
            ends = {each.name: self.damaged.get(each.name, each.ends) for each in partitions}
            expected = {f"{name}@{at}" for name, end in ends.items() for at in range(end)}
            table = self.changelogs.get(topic)
            if table is None or table.marker is None:
                # A process may have ended between the two.
                assert not expected
                continue
            rows = [row[1] for row in table.rows if row[0] == table.marker.epoch]
            assert len(rows) == len(set(rows)), "a record is there twice"
            assert set(rows) == expected, "a record is missing"
            for each in partitions:
                if end := ends[each.name]:
                    assert acknowledged is not None
                    found = (table.marker.position, acknowledged.position)
                    assert [at[each.name] for at in found] == [end] * 2  # type: ignore[index]
                    assert each.acknowledged == end


def die() -> None:
    raise InjectedFault


@contextmanager
def workers(
    monkeypatch: pytest.MonkeyPatch, *, forgets: bool = True, partitions: int = 2
) -> Iterator[Workers]:
    made = Workers(forgets=forgets, partitions=partitions)
    with monkeypatch.context() as patch:
        patch.setattr(batch_run, "_read", read_batch)
        for module in (batch_run, ingester):
            patch.setattr(module, "failpoint", made.pass_point)
        yield made
