"""``frazil dlq``: letters are listed, shown, dropped, and replayed exactly once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from frazil.cli.exit_codes import ExitCode
from frazil.clients.iceberg.lake import Lake
from frazil.clients.spark.session import attach_session
from frazil.config import load_config
from frazil.errors import SourceReplacedError
from frazil.hooks import InjectedFault, armed
from frazil.ingest.replay import LetterReplay, ReplayReport
from frazil.ingest.settings import CaptureSettings
from frazil.ledger.dead_letters import DeadLetterTable
from frazil.model.marker import MarkerRole
from frazil.model.records.dead_letter import letter_id
from frazil.model.records.record_payload import RecordPayload
from frazil.model.records.rejected_record import RejectedRecord, RejectReason
from frazil.model.table_name import TableName
from frazil.pipeline.letters import replay as letter_replay
from frazil.pipeline.tables.captured_mirrors import CapturedMirror
from frazil.sources.kind import CapturePolicy, ListedTable, SourceKind
from frazil.sources.registry import KINDS
from frazil.testing.in_memory_replaying import InMemoryReplayer
from tests.support.ingest.topics_world import U0, U1, USERS, TopicsWorld, Worker, topics_world
from tests.support.process.jvms import QUICK_JAVA
from tests.support.process.session_commands import run_on

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.model.marker import Marker
    from frazil.model.records.dead_letter import DeadLetter
    from frazil.model.source_table import SourceTable
    from frazil.sources.replaying import RecordReplayer, ReplayedReading
    from frazil.testing.in_memory_topics import InMemoryTopics

__all__ = ["topics_world"]

pytestmark = pytest.mark.spark

DOCUMENT = """
pipeline: shop
catalog:
  name: {catalog}
  kind: sql
  uri: 'sqlite:///{folder}/catalog.db'
  warehouse: 'file://{folder}/warehouse'
tables:
  - {{mirror: public.users, changelog: public.users_changelog, key: [id]}}
spark:
  master: 'local[1]'
  conf: {{spark.driver.memory: 1g, spark.driver.extraJavaOptions: '{java}'}}
"""
SEEN = datetime(2026, 5, 4, 12, 30, 15, 123456, tzinfo=UTC)
SOURCE = "cluster 1"
TEXT, BYTES = '{"name": "zoë"}\x1b[2J', b"\xff\x00"


def rejected(
    table: str, offset: int, payload: bytes, reason: RejectReason = RejectReason.INVALID
) -> RejectedRecord:
    return RejectedRecord(
        table=table,
        partition="0",
        offset=offset,
        reason=reason,
        message=f"{table} has no such column",
        payload=payload,
    )


LETTERS = (
    [rejected("orders", 7, TEXT.encode()), rejected("orders", 8, BYTES, RejectReason.MALFORMED)],
    [rejected("users", 3, b"three"), rejected("users", 4, b"four")],
)


@dataclass(frozen=True)
class Letters:
    """A pipeline with four dead letters in two files."""

    document: Path
    table: DeadLetterTable
    spark: SparkSession

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return run_on(self.spark, "dlq", *words, "-c", str(self.document))

    def json(self, *words: str) -> Any:
        done = self.run(*words, "-o", "json")
        assert done.returncode == ExitCode.DONE, done.stderr
        return json.loads(done.stdout)

    def left(self) -> list[bytes]:
        rows = self.table.table.read().collect()
        return sorted(bytes(row.payload) for row in rows)

    def marker(self) -> Any:
        return self.table.table.load_marker(MarkerRole.INGEST)


@pytest.fixture
def letters(spark: SparkSession, tmp_path: Path) -> Letters:
    # A name of its own, because a session keeps every catalog it has met.
    catalog = f"c_{tmp_path.name}"
    document = tmp_path / "frazil.yaml"
    document.write_text(DOCUMENT.format(folder=tmp_path, catalog=catalog, java=QUICK_JAVA))
    config = load_config(document, environ={}).config
    lake = Lake(attach_session(spark, config), catalog)
    table = DeadLetterTable.ensure(lake, TableName(catalog, ("frazil",), "shop_dead_letters"))
    for number, records in enumerate(LETTERS):
        at = SEEN + timedelta(hours=number)
        table.keep(records, pipeline="shop", source=SOURCE, batch=f"batch {number}", at=at)
    return Letters(document, table, spark)


def id_of(offset: int, payload: bytes, table: str = "orders") -> str:
    position = json.dumps({f"{table}/0": offset}, separators=(",", ":"))
    return letter_id(SOURCE, position, payload)


def test_letters_are_listed_without_their_payloads(letters: Letters) -> None:
    found = letters.json("ls")
    assert [each["position"] for each in found] == [
        '{"orders/0":7}',
        '{"orders/0":8}',
        '{"users/0":3}',
        '{"users/0":4}',
    ]
    assert found[0] == {
        "id": id_of(7, TEXT.encode()),
        "source": SOURCE,
        "table": "orders",
        "position": '{"orders/0":7}',
        "reason": "invalid",
        "message": "orders has no such column",
        "first_seen_at": SEEN.isoformat(),
        "last_seen_at": SEEN.isoformat(),
        "attempts": 1,
        "batch": "batch 0",
        "payload_bytes": len(TEXT.encode()),
    }
    assert [each["id"] for each in letters.json("ls", "--reason", "malformed")] == [id_of(8, BYTES)]
    assert len(letters.json("ls", "--table", "users", "--reason", "invalid")) == 2
    few = letters.run("ls", "--limit", "1")
    assert "there are more" in few.stderr
    header, only = few.stdout.splitlines()
    assert header.split()[:3] == ["ID", "TABLE", "POSITION"]
    assert only.split()[:4] == [id_of(7, TEXT.encode()), "orders", '{"orders/0":7}', "invalid"]
    assert "zoë" not in few.stdout + few.stderr
    wrong = letters.run("ls", "--reason", "bad")
    assert (wrong.returncode, "FRZ-CFG-01" in wrong.stderr) == (ExitCode.USAGE, True)


def test_one_letter_is_shown_with_its_payload_on_stdout_only(letters: Letters) -> None:
    shown = letters.run("show", id_of(7, TEXT.encode()))
    assert shown.stdout.splitlines()[-2:] == ["payload:", r'{"name": "zoë"}\x1b[2J']
    assert "zoë" not in shown.stderr
    assert letters.json("show", id_of(7, TEXT.encode()))["payload"] == TEXT
    assert letters.json("show", id_of(8, BYTES))["payload_base64"] == "/wA="
    unknown = letters.run("show", "0" * 12)
    assert unknown.returncode == ExitCode.USAGE
    assert "frazil dlq ls" in unknown.stderr


def test_dropped_letters_are_gone_and_the_others_are_as_they_were(letters: Letters) -> None:
    before, listed = letters.marker(), letters.json("ls")
    one = id_of(7, TEXT.encode())
    assert letters.json("drop", one, "--dry-run") == {"dropped": [one], "applied": False}
    assert letters.run("drop", one).returncode == ExitCode.USAGE, "off a terminal it wants --yes"
    assert letters.run("drop", one, "--all", "--yes").returncode == ExitCode.USAGE
    assert letters.run("drop", one, "0" * 12, "--yes").returncode == ExitCode.USAGE
    assert letters.json("ls") == listed
    assert letters.marker() == before

    assert letters.json("drop", one, "--yes") == {"dropped": [one], "applied": True}
    assert letters.json("ls") == listed[1:]
    after = letters.marker()
    assert (after.position, after.source) == (before.position, before.source)
    assert after.batch != before.batch
    # What was dropped does not come back when its batch is read again with what follows it.
    letters.table.keep(LETTERS[1], pipeline="shop", source=SOURCE, batch="again", at=SEEN)
    assert len(letters.left()) == 3


def test_all_letters_of_a_table_or_all_are_dropped(letters: Letters) -> None:
    done = letters.run("drop", "--all", "--table", "users", "--yes")
    assert done.stdout.splitlines()[-1] == "2 dead letters dropped"
    assert letters.left() == sorted([TEXT.encode(), BYTES])
    assert len(letters.json("drop", "--all", "--yes")["dropped"]) == 2
    assert letters.left() == []
    assert letters.json("ls") == []
    assert letters.json("drop", "--all", "--yes") == {"dropped": [], "applied": True}
    # The next ones are kept after them.
    more = [rejected("orders", 9, b"nine")]
    letters.table.keep(more, pipeline="shop", source=SOURCE, batch="next", at=SEEN)
    assert letters.left() == [b"nine"]


def test_a_pipeline_without_dead_letters_has_an_empty_list(letters: Letters) -> None:
    text = letters.document.read_text().replace("pipeline: shop", "pipeline: other")
    letters.document.write_text(text)
    assert letters.json("ls") == []
    assert letters.run("show", "0" * 12).returncode == ExitCode.USAGE


def test_letters_of_another_pipeline_are_refused(letters: Letters) -> None:
    text = letters.document.read_text().replace("pipeline: shop", "pipeline: other")
    letters.document.write_text(text + "dead_letters: {table: shop_dead_letters}\n")
    refused = letters.run("drop", "--all", "--yes")
    assert refused.returncode == ExitCode.USAGE
    assert "the dead letters of the pipeline shop" in refused.stderr
    assert len(letters.left()) == 4


def test_a_source_that_cannot_replay_refuses(letters: Letters) -> None:
    one = id_of(7, TEXT.encode())
    assert letters.run("replay", one, "--yes").returncode == ExitCode.USAGE, "no source at all"
    # Nothing is connected for this.
    text = letters.document.read_text()
    source = "source: {kind: postgres, dsn: 'postgresql://nowhere.invalid/d'}\n"
    letters.document.write_text(
        text[: text.index("tables:")] + source + text[text.index("spark") :]
    )
    refused = letters.run("replay", "--all", "--yes")
    assert refused.returncode == ExitCode.USAGE
    assert "kind postgres cannot be replayed" in refused.stderr
    assert len(letters.left()) == 4


# --- replay ---


def payload(value: bytes) -> bytes:
    return RecordPayload(timestamp_ms=1_700_000_000_000, value=value).encode()


def good(number: int) -> bytes:
    return payload(json.dumps({"id": number, "name": "replayed"}).encode())


@dataclass(frozen=True)
class Between(InMemoryReplayer):
    """A replayer during whose first reading something else happens."""

    meanwhile: list[Callable[[], object]]

    def read(
        self, table: SourceTable, records: Sequence[RejectedRecord]
    ) -> Sequence[ReplayedReading]:
        found = super().read(table, records)
        while self.meanwhile:
            self.meanwhile.pop()()
        return found


@dataclass
class Replays:
    """Topics of which records were rejected, and captured beyond them."""

    world: TopicsWorld
    worker: Worker

    @property
    def letters(self) -> DeadLetterTable:
        lake = Lake(self.world.spark, self.world.case.catalog)
        return DeadLetterTable.open(lake, self.world.name("dead_letters"))

    def all(self) -> list[DeadLetter]:
        return list(self.letters.letters())

    def replay(self, replayer: RecordReplayer | None = None) -> ReplayReport:
        return LetterReplay(
            Lake(self.world.spark, self.world.case.catalog),
            self.letters,
            replayer or InMemoryReplayer(self.world.topics),
            pipeline="topics",
            captures=lambda table: CaptureSettings(changelog=self.world.changelog(table)),
        ).replay(self.all())

    def rows(self) -> list[tuple[str, int, str]]:
        found = self.world.case.lake.open(self.world.changelog(USERS)).read().collect()
        return sorted((each.cdc_lsn, each.id, each.name) for each in found)

    def marker(self) -> Marker:
        table = self.world.case.lake.open(self.world.changelog(USERS))
        found = table.load_marker(MarkerRole.INGEST)
        assert found is not None
        return found


REPLAYED = [(f"{U0}@0", 100, "replayed"), (f"{U0}@2", 1, U0), (f"{U1}@0", 102, "replayed")]


@pytest.fixture
def replays(topics_world: TopicsWorld) -> Replays:
    topics = topics_world.topics
    topics.produce(U0, {}, rejected=good(100))
    topics.produce(U0, {}, rejected=payload(b"no json"))
    topics.produce(U1, {}, rejected=good(102))
    topics_world.produce(U0)
    worker = topics_world.start("worker")
    worker.run()
    return Replays(topics_world, worker)


# The first commit is that of the table, the second that of the dead letters.
@pytest.mark.parametrize(
    "point",
    [
        "commit.planned=error@1", "commit.landed=error@1",
        "commit.staged=error@2", "commit.landed=error@2",
    ],
)  # fmt: skip
def test_a_letter_becomes_one_row_wherever_a_replay_ends(replays: Replays, point: str) -> None:
    first, bad, last = replays.all()
    before = replays.marker()
    with armed(point), pytest.raises(InjectedFault):
        replays.replay()
    report = replays.replay()
    assert {*report.appended} <= {first.id, last.id}
    assert report.rejected == (bad.id,)
    assert replays.rows() == REPLAYED
    (left,) = replays.all()
    assert (left.id, left.reason) == (bad.id, "malformed")
    assert replays.marker().position == before.position
    # What is captured next goes on from there.
    replays.world.produce(U0, U1)
    replays.worker.run()
    assert len(replays.rows()) == 5


def test_a_letter_that_is_still_no_row_counts_its_attempts(replays: Replays) -> None:
    _, bad, _ = replays.all()
    assert len(replays.replay().appended) == 2
    assert replays.replay().rejected == (bad.id,)
    (left,) = replays.all()
    assert (left.attempts, left.message) == (3, "its value is no row of the table.")
    assert left.first_seen_at == bad.first_seen_at < left.last_seen_at
    assert replays.rows() == REPLAYED


def test_a_letter_that_another_process_replays_meanwhile_is_one_row(replays: Replays) -> None:
    first, bad, last = replays.all()
    report = replays.replay(Between(replays.world.topics, [replays.replay]))
    # Whoever was faster, they are in the table now.
    assert ({*report.appended}, report.rejected) == ({first.id, last.id}, (bad.id,))
    assert replays.rows() == REPLAYED


def test_a_table_that_is_captured_meanwhile_is_planned_again(replays: Replays) -> None:
    def capture() -> None:
        replays.world.produce(U1)
        replays.worker.run()

    assert len(replays.replay(Between(replays.world.topics, [capture])).appended) == 2
    assert replays.rows() == sorted([*REPLAYED, (f"{U1}@1", 2, U1)])


def test_a_letter_that_its_table_has_not_passed_waits(replays: Replays) -> None:
    replays.world.topics.produce(U1, {}, rejected=good(103))
    # Its letter is kept, and then the process ends.
    with armed("commit.landed=error@1"), pytest.raises(InjectedFault):
        replays.worker.run()
    waiting = replays.all()[-1]
    report = replays.replay()
    assert report.waiting == (waiting.id,)
    assert len(report.appended) == 2
    replays.world.start("worker").run()
    assert replays.replay().appended == (waiting.id,)
    assert replays.rows() == sorted([*REPLAYED, (f"{U1}@1", 103, "replayed")])


def test_letters_of_another_source_are_refused(replays: Replays) -> None:
    replays.world.topics.identity = "topics 2"
    with pytest.raises(SourceReplacedError):
        replays.replay()
    assert len(replays.all()) == 3


class ReplayingKind(SourceKind):
    """A kind whose records are those of topics in memory."""

    name = "replaying"
    topics: ClassVar[InMemoryTopics]
    listed: ClassVar[ListedTable]

    @property
    def policy(self) -> CapturePolicy:
        return CapturePolicy(held_bytes=0)

    def listed_tables(self) -> tuple[ListedTable, ...]:
        return (self.listed,)

    def replayer(self) -> RecordReplayer:
        return InMemoryReplayer(self.topics)


TOPICS_DOCUMENT = """
pipeline: topics
catalog: {{name: {catalog}, kind: sql, uri: 'sqlite:///unused.db', warehouse: ./unused}}
source:
  kind: kafscale
  bucket: unused
  offsets: {{backend: none}}
  topics: [{{topic: shop.users, table: {namespace}.shop_users}}]
ledger: {{namespace: {namespace}, table: ledger}}
dead_letters: {{namespace: {namespace}, table: dead_letters}}
"""


@pytest.fixture
def command(replays: Replays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Letters:
    world = replays.world
    ReplayingKind.topics = world.topics
    ReplayingKind.listed = ListedTable(source=USERS, changelog=f"{world.namespace}.shop_users")
    monkeypatch.setitem(KINDS, "kafscale", f"{__name__}:{ReplayingKind.__name__}")
    document = tmp_path / "frazil.yaml"
    text = TOPICS_DOCUMENT.format(catalog=world.case.catalog, namespace=world.namespace)
    document.write_text(text)
    return Letters(document, replays.letters, world.spark)


def test_the_command_says_what_became_of_each_letter(replays: Replays, command: Letters) -> None:
    first, bad, last = replays.all()
    assert command.json("replay", "--all", "--dry-run")["applied"] is False
    assert replays.rows() == REPLAYED[1:2]
    assert command.run("replay", "--all").returncode == ExitCode.USAGE
    done = command.json("replay", first.id, last.id, "--yes")
    assert done == {
        "letters": [first.id, last.id],
        "appended": [first.id, last.id],
        "pending": [],
        "rejected": [],
        "waiting": [],
        "applied": True,
    }
    assert replays.rows() == REPLAYED
    again = command.run("replay", "--all", "--yes")
    assert again.returncode == ExitCode.ACTION_REQUIRED
    assert again.stdout.splitlines()[1].split()[:2] == [bad.id, USERS]
    assert "still rejected" in again.stdout


def test_letters_are_not_replayed_under_a_mirror_that_relies_on_order(
    replays: Replays, command: Letters, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = CapturedMirror(USERS, replays.world.changelog(USERS), ("id",))
    found = {"shop.users": mirror}
    monkeypatch.setattr(letter_replay, "load_captured_mirrors", lambda *_: found)
    document = command.document.read_text()
    command.document.write_text(f"{document}tables: [{{mirror: shop.users, order: append}}]\n")
    refused = command.run("replay", "--all", "--yes")
    assert refused.returncode == ExitCode.USAGE
    assert "order: per_key" in refused.stderr
    assert replays.rows() == REPLAYED[1:2]
    # Without a word about it, topics have no order.
    command.document.write_text(document)
    assert command.run("replay", "--all", "--yes").returncode == ExitCode.ACTION_REQUIRED
