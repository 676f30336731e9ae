"""Commits through catalogs that answer wrongly, late, or not at all."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from frazil import errors
from frazil.clients.iceberg.commit.retrying import RetryPolicy
from frazil.clients.iceberg.commit.strict_commit import CommitOutcome, FileChanges, StrictCommit
from frazil.clients.iceberg.lake import Lake, TableDefinition
from frazil.clients.spark.pinned_session import pinned_session
from frazil.clients.spark.session import attach_session
from frazil.config import load_config
from frazil.hooks import armed
from frazil.model.marker import Marker, MarkerMove, MarkerRole
from frazil.model.table_name import TableName
from tests.support.faults.proxy import (
    Answer,
    AnswerInstead,
    CutReply,
    HoldUntilReleased,
    HttpProxy,
    LoseReply,
    Refuse,
    TcpProxy,
    TimeOut,
    is_commit,
)
from tests.support.lake.catalogs import Kind
from tests.support.lake.files import SCHEMA, FileWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from frazil.clients.iceberg.commit.strict_commit import Receipt
    from frazil.clients.iceberg.table import LakeTable
    from frazil.demo.services import Postgres, RestCatalog
    from tests.support.faults.proxy import Fault
    from tests.support.lake.catalogs import LakeCase

pytestmark = pytest.mark.spark

QUICKLY = RetryPolicy(attempts=4, base_seconds=0.05, longest_seconds=0.2)
# Iceberg's client would wait and repeat for minutes; it must give up before the test does.
IMPATIENT = (
    "rest.client.socket-timeout-ms: '1500', rest.client.connection-timeout-ms: '1500', "
    "rest.client.max-retries: '1'"
)


def goal(position: int, batch: str | None = None) -> Marker:
    return Marker(
        pipeline="tests", source="numbers", position=str(position), batch=batch or f"b{position}"
    )


class Numbers:
    """A table that takes one number a commit; its position counts the commits."""

    def __init__(self, table: LakeTable) -> None:
        self.table = table
        self.location = table.load_state().location
        self.files = FileWriter()

    def step(self, number: int, batch: str | None = None) -> StrictCommit:
        file = self.files.write(self.location, [number])
        start = None if number == 0 else str(number - 1)
        move = MarkerMove(MarkerRole.INGEST, start, goal(number, batch))
        return StrictCommit(move=move, changes=FileChanges(added=(file,)))

    def append(self, number: int) -> Receipt:
        return self.table.append(self.step(number), QUICKLY)

    def ids(self) -> list[int]:
        return sorted(row.id for row in self.table.read().collect())

    def sql_name(self) -> str:
        return self.table.name.quoted


@contextmanager
def attached(spark: SparkSession, folder: Path, catalog: str) -> Iterator[Callable[[], Numbers]]:
    """A catalog under a name of its own, and new tables in it."""
    name = f"faulty_{uuid4().hex[:8]}"
    document = folder / f"{name}.yaml"
    document.write_text(
        f"pipeline: tests\ncatalog: {{name: {name}, {catalog}}}\n"
        "tables: [{mirror: a.b, changelog: a.c, key: [id]}]\n"
    )
    attach_session(spark, load_config(document, environ={}).config)
    lake = Lake(spark, name)

    def new() -> Numbers:
        table = TableName(name, ("faults",), f"t_{uuid4().hex[:12]}")
        return Numbers(lake.ensure_table(table, TableDefinition(schema=SCHEMA)))

    yield new


@pytest.fixture
def proxy(file_catalog: RestCatalog) -> Iterator[HttpProxy]:
    with HttpProxy(file_catalog.uri) as proxy:
        yield proxy


@pytest.fixture
def numbers(spark: SparkSession, proxy: HttpProxy, tmp_path: Path) -> Iterator[Numbers]:
    """A table behind the proxy, with one commit in it."""
    catalog = (
        f"kind: rest, uri: '{proxy.url}', warehouse: 'file:///unused', properties: {{{IMPATIENT}}}"
    )
    with attached(spark, tmp_path, catalog) as new:
        table = new()
        table.append(0)
        yield table


def commits_forwarded(proxy: HttpProxy) -> int:
    return sum(
        exchange.forwarded and is_commit(exchange.method, exchange.path, b"")
        for exchange in proxy.requests
    )


@pytest.mark.fault("C2", "K4")
@pytest.mark.parametrize(
    "fault",
    [
        AnswerInstead(500),
        *(pytest.param(AnswerInstead(each), marks=pytest.mark.deep) for each in (502, 503, 504)),
        AnswerInstead(409),
        LoseReply(),
        CutReply(20),
    ],
    ids=str,
)
def test_a_commit_that_landed_is_found_whatever_the_reply_said(
    numbers: Numbers, proxy: HttpProxy, fault: Fault
) -> None:
    proxy.script(is_commit, fault)
    receipt = numbers.table.commit(numbers.step(1))
    assert receipt.outcome is CommitOutcome.FOUND_AFTERWARDS
    assert numbers.append(2).outcome is CommitOutcome.COMMITTED
    assert numbers.ids() == [0, 1, 2]


@pytest.mark.fault("C2")
@pytest.mark.parametrize(
    "faults",
    # Twice 503: the client itself repeats that one once.
    [
        (Answer(409),),
        (Answer(503), Answer(503)),
        *(pytest.param((Answer(each),), marks=pytest.mark.deep) for each in (500, 502, 504)),
        (Refuse(),),
        (TimeOut(),),
    ],
    ids=str,
)
def test_a_commit_that_did_not_land_is_recognised_and_repeated(
    numbers: Numbers, proxy: HttpProxy, faults: tuple[Fault, ...]
) -> None:
    before = commits_forwarded(proxy)
    proxy.script(is_commit, *faults)
    step = numbers.step(1)
    with pytest.raises(errors.CommitConflictError, match="did not land"):
        numbers.table.commit(step)
    assert commits_forwarded(proxy) == before
    assert numbers.table.append(step, QUICKLY).outcome is CommitOutcome.COMMITTED
    assert numbers.ids() == [0, 1]


@pytest.mark.fault("C6")
def test_a_busy_catalog_is_retried_after_the_delay_it_requested(
    numbers: Numbers, proxy: HttpProxy
) -> None:
    proxy.script(is_commit, Answer(429, headers={"Retry-After": "1"}))
    started = time.monotonic()
    assert numbers.append(1).outcome is CommitOutcome.COMMITTED
    assert time.monotonic() - started >= 1
    assert numbers.ids() == [0, 1]


@pytest.mark.fault("C6")
@pytest.mark.parametrize("status", [401, 403])
def test_refused_credentials_stop_at_once(numbers: Numbers, proxy: HttpProxy, status: int) -> None:
    body = json.dumps({"error": {"message": "no", "type": "NotAuthorized", "code": status}})
    proxy.script(is_commit, Answer(status, body.encode()))
    with pytest.raises(errors.PermissionError, match="refused the credentials"):
        numbers.append(1)
    assert numbers.ids() == [0]


@pytest.mark.fault("C3")
def test_a_commit_that_lands_late_after_its_repeat_is_refused(
    numbers: Numbers, proxy: HttpProxy
) -> None:
    proxy.script(is_commit, HoldUntilReleased("late"))
    step = numbers.step(1)
    with pytest.raises(errors.CommitConflictError):
        numbers.table.commit(step)
    assert numbers.table.commit(step).outcome is CommitOutcome.COMMITTED
    assert proxy.release("late") == HTTPStatus.CONFLICT
    assert numbers.ids() == [0, 1]


@pytest.mark.fault("C3")
def test_a_commit_that_lands_late_before_its_repeat_makes_the_repeat_a_no_op(
    numbers: Numbers, proxy: HttpProxy
) -> None:
    proxy.script(is_commit, HoldUntilReleased("late"))
    step = numbers.step(1)
    with pytest.raises(errors.CommitConflictError):
        numbers.table.commit(step)
    assert proxy.release("late") == HTTPStatus.OK
    assert numbers.table.commit(step).outcome is CommitOutcome.ALREADY_DONE
    assert numbers.ids() == [0, 1]


@pytest.mark.fault("C2")
def test_without_a_reply_to_the_check_the_outcome_is_unknown(
    numbers: Numbers, proxy: HttpProxy
) -> None:
    down = threading.Event()

    def lose_and_go_down(method: str, path: str, body: bytes) -> bool:
        found = is_commit(method, path, body)
        if found:
            down.set()
        return found

    proxy.script(lose_and_go_down, LoseReply())
    # More often than the client repeats the question by itself.
    proxy.script(lambda method, _path, _body: method == "GET" and down.is_set(), *[Refuse()] * 50)
    step = numbers.step(1)
    with pytest.raises(
        errors.CommitUnknownError, match="a commit of batch b1 could not be verified"
    ):
        numbers.table.commit(step)
    down.clear()
    assert numbers.table.commit(step).outcome is CommitOutcome.ALREADY_DONE
    assert numbers.ids() == [0, 1]


@pytest.mark.fault("N5")
def test_a_database_that_loses_the_reply_to_a_landed_commit_does_not_double_it(
    spark: SparkSession, postgres: Postgres, tmp_path: Path
) -> None:
    with TcpProxy("127.0.0.1", postgres.port) as proxy:
        dsn = postgres.dsn.replace(f":{postgres.port}", f":{proxy.port}")
        catalog = f"kind: sql, uri: '{dsn}', warehouse: 'file://{tmp_path}/wh'"
        with attached(spark, tmp_path, catalog) as new:
            numbers = new()
            numbers.append(0)
            proxy.cut_replies_when(lambda sent: b"UPDATE iceberg_tables" in sent)
            receipt = numbers.append(1)
            assert proxy.cuts == 1
            assert receipt.outcome is CommitOutcome.FOUND_AFTERWARDS
            numbers.append(2)
            assert numbers.ids() == [0, 1, 2]


class Paused:
    """A commit in a separate thread, suspended at a failpoint until released."""

    def __init__(self, point: str, gate: Path, work: Callable[[], Receipt]) -> None:
        self._point, self._gate, self._work = point, gate, work
        self.receipt: Receipt | None = None
        self.error: Exception | None = None

    def __enter__(self) -> Paused:
        self._gate.touch()
        self._armed = armed(f"{self._point}=hold({self._gate})@1")
        self._armed.__enter__()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        reached = self._gate.with_name(f"{self._gate.name}.reached")
        deadline = time.monotonic() + 120
        while not reached.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert reached.exists()
        return self

    def _run(self) -> None:
        try:
            self.receipt = self._work()
        except Exception as error:  # noqa: BLE001 - handed to the test
            self.error = error

    def finish(self) -> None:
        self._gate.unlink(missing_ok=True)
        self._thread.join(60)

    def __exit__(self, *_ended: object) -> None:
        self.finish()
        self._armed.__exit__(None, None, None)


@pytest.fixture(params=[Kind.SQLITE_FILE, Kind.REST_FILE], ids=str)
def healthy(request: pytest.FixtureRequest, lake_of: Callable[[Kind], LakeCase]) -> Numbers:
    """A table in a catalog without faults, with one commit in it."""
    numbers = Numbers(lake_of(request.param).new_table())
    numbers.append(0)
    return numbers


@pytest.mark.fault("C1", "C7")
def test_a_head_that_moves_after_staging_refuses_the_commit(
    healthy: Numbers, spark: SparkSession, tmp_path: Path
) -> None:
    step = healthy.step(1)
    with Paused("commit.staged", tmp_path / "gate", lambda: healthy.table.commit(step)) as paused:
        spark.sql(f"insert into {healthy.sql_name()} values (100, 'foreign')")
        paused.finish()
        assert isinstance(paused.error, errors.CommitConflictError)
    assert healthy.ids() == [0, 100]
    assert healthy.table.append(step).outcome is CommitOutcome.COMMITTED
    assert healthy.ids() == [0, 1, 100]


def test_a_head_that_moved_before_staging_is_built_upon(
    healthy: Numbers, spark: SparkSession, tmp_path: Path
) -> None:
    step = healthy.step(1)
    with Paused("commit.planned", tmp_path / "gate", lambda: healthy.table.commit(step)) as paused:
        spark.sql(f"insert into {healthy.sql_name()} values (100, 'foreign')")
        paused.finish()
        assert paused.receipt is not None
    assert healthy.ids() == [0, 1, 100]


@pytest.mark.fault("C1")
def test_what_was_planned_on_another_head_is_planned_again(
    healthy: Numbers, spark: SparkSession
) -> None:
    head = healthy.table.load_state().head
    assert head is not None
    step = healthy.step(1)
    spark.sql(f"insert into {healthy.sql_name()} values (100, 'foreign')")
    planned = StrictCommit(move=step.move, changes=step.changes, planned_on=head.id)
    with pytest.raises(errors.CommitConflictError, match="newer head"):
        healthy.table.commit(planned)


def test_a_rival_that_did_the_work_fences_the_slower_one(healthy: Numbers, tmp_path: Path) -> None:
    slow, fast = healthy.step(1, "slow"), healthy.step(1, "fast")
    with Paused("commit.staged", tmp_path / "gate", lambda: healthy.table.append(slow)) as paused:
        assert healthy.table.append(fast).outcome is CommitOutcome.COMMITTED
        paused.finish()
        assert isinstance(paused.error, errors.FencedError)
        assert "moved by batch fast of pipeline tests" in str(paused.error)
    assert healthy.ids() == [0, 1]


@pytest.mark.fault("N17")
def test_a_foreign_partition_field_between_staging_and_commit_leaves_the_table_readable(
    healthy: Numbers, spark: SparkSession, tmp_path: Path
) -> None:
    step = healthy.step(1)
    with Paused("commit.staged", tmp_path / "gate", lambda: healthy.table.append(step)) as paused:
        spark.sql(f"alter table {healthy.sql_name()} add partition field bucket(4, id)")
        paused.finish()
        assert paused.receipt is not None
    assert healthy.ids() == [0, 1]


@pytest.mark.fault("C5", "N4")
def test_a_rolled_back_table_stops_by_name(healthy: Numbers, spark: SparkSession) -> None:
    healthy.append(1)
    first = healthy.table.load_ancestry()[-1]
    name = healthy.table.name
    spark.sql(f"call {name.catalog}.system.rollback_to_snapshot('{name}', {first.id})")
    with pytest.raises(errors.RolledBackError, match="not in the table's history"):
        healthy.append(2)
    assert healthy.ids() == [0]


@pytest.mark.fault("C5", "N4")
def test_a_replaced_table_stops_by_name_although_its_properties_survive(
    healthy: Numbers, spark: SparkSession
) -> None:
    spark.sql(
        f"create or replace table {healthy.sql_name()} using iceberg as select 5L id, 'x' name"
    )
    assert MarkerRole.INGEST.property_name in healthy.table.load_state().properties
    with pytest.raises(errors.RolledBackError):
        healthy.append(1)


@pytest.mark.fault("C5")
def test_a_removed_marker_stops_by_name(healthy: Numbers, spark: SparkSession) -> None:
    spark.sql(f"alter table {healthy.sql_name()} unset tblproperties ('frazil.ingest')")
    with pytest.raises(errors.MarkerLostError, match="1 rows and no marker"):
        healthy.append(1)


def test_a_damaged_marker_stops_by_name(healthy: Numbers, spark: SparkSession) -> None:
    spark.sql(f"alter table {healthy.sql_name()} set tblproperties ('frazil.ingest' = 'x')")
    with pytest.raises(errors.MarkerLostError, match=r"frazil\.ingest is not a marker"):
        healthy.append(1)


@pytest.mark.fault("C4")
def test_a_table_recreated_under_the_same_name_stops_by_name(
    healthy: Numbers, spark: SparkSession
) -> None:
    spark.sql(f"drop table {healthy.sql_name()}")
    with pytest.raises(errors.TableNotFoundError):
        healthy.append(1)
    spark.sql(f"create table {healthy.sql_name()} (id bigint, name string) using iceberg")
    with pytest.raises(errors.TableReplacedError, match="its UUID is"):
        healthy.append(1)


@pytest.mark.fault("C8")
def test_deleted_metadata_is_named(
    lake_of: Callable[[Kind], LakeCase], spark: SparkSession
) -> None:
    case = lake_of(Kind.SQLITE_FILE)
    numbers = Numbers(case.new_table())
    numbers.append(0)
    metadata = Path(urlsplit(numbers.table.load_metadata_location()).path)
    # Out of Spark's memory first, so that opening the table reads the file.
    pinned_session(spark).sql(f"refresh table {numbers.sql_name()}")
    away = metadata.rename(metadata.with_suffix(".away"))
    with pytest.raises(errors.StorageError, match=metadata.name):
        case.lake.open(numbers.table.name)
    away.rename(metadata)
    assert numbers.append(1).outcome is CommitOutcome.COMMITTED


@pytest.mark.fault("C5")
def test_a_marker_outlives_the_expiry_of_its_snapshot(
    healthy: Numbers, spark: SparkSession
) -> None:
    for _ in range(3):
        spark.sql(f"insert into {healthy.sql_name()} values (100, 'foreign')")
    name = healthy.table.name
    spark.sql(
        f"call {name.catalog}.system.expire_snapshots(table => '{name}', "
        "older_than => timestamp '2100-01-01 00:00:00', retain_last => 1)"
    )
    assert len(healthy.table.load_ancestry()) == 1
    assert healthy.append(1).outcome is CommitOutcome.COMMITTED


@pytest.mark.fault("C2")
def test_a_failed_attempt_leaves_its_files_alone(
    healthy: Numbers, spark: SparkSession, tmp_path: Path
) -> None:
    step = healthy.step(1)
    path = json.loads(step.changes.added[0])["file-path"]
    with Paused("commit.staged", tmp_path / "gate", lambda: healthy.table.commit(step)) as paused:
        spark.sql(f"insert into {healthy.sql_name()} values (100, 'foreign')")
        paused.finish()
    assert isinstance(paused.error, errors.CommitConflictError)
    assert healthy.files.exists(path)
