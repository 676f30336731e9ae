"""``verify`` against the source: mirrors that are the source, and every way in which one is not."""

from __future__ import annotations

import json
import random
import threading
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from frazil.cli.exit_codes import ExitCode
from frazil.cli.invocation import Invocation
from frazil.cli.output import OutputFormat
from frazil.cli.verbs.verify import NO_MIRROR, VerifyRequest, exit_code_of, verify_mirrors
from frazil.errors import SourceReplacedError
from frazil.hooks import ManualClock
from frazil.pipeline.capture import build_ingest_loop
from frazil.pipeline.loops.loop import StopRequest
from frazil.pipeline.tables.merge_settings import load_merges
from frazil.pipeline.verification import build_source_verifier
from frazil.verify.mirror_progress import ABSENT_POLLS, POLL_SECONDS
from frazil.verify.row_comparison import DifferenceKind
from tests.support.ingest.captured import captured_database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from frazil.demo.services import Postgres
    from frazil.hooks import Clock
    from frazil.verify.mirror_verifier import Verification
    from tests.support.ingest.captured import CapturedDatabase

pytestmark = [pytest.mark.spark, pytest.mark.services]

AT_ONCE = timedelta()
# Far above what a busy machine needs for an ingest and a merge.
PATIENTLY = timedelta(seconds=60)
ACCOUNTS, ORDERS = 500, 50
# Accounts that do not change at the source, and one that it does not have.
FIRST_UNTOUCHED, EDITED, REMOVED, ADDED = 491, 491, 492, 999


@pytest.fixture(scope="module")
def world(
    spark: SparkSession, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CapturedDatabase]:
    """Tables with keys of several kinds, and one without a key.

    Of two tables a row was deleted that their mirrors keep.
    """
    folder = tmp_path_factory.mktemp("verified")
    with captured_database(
        spark,
        postgres,
        folder,
        source={"heartbeat": "1s"},
        ingest={"interval": "200ms"},
        tables=[
            {"mirror": "public.marked", "deletes": "soft"},
            {"mirror": "public.kept", "deletes": "ignore"},
        ],
    ) as made:
        made.run(
            "create table accounts (id int primary key, name text, amount numeric(12,2))",
            f"insert into accounts select i, 'name ' || i, i from generate_series(1, {ACCOUNTS}) i",
            "create table orders (region text, at uuid, note text, primary key (region, at))",
            "insert into orders select 'it''s ' || i, gen_random_uuid(), i "
            f"from generate_series(1, {ORDERS}) i",
            "create table keyless (name text)",
            "insert into keyless values ('x')",
            "create table marked (id int primary key)",
            "insert into marked values (1), (2), (3)",
            "create table kept (id int primary key)",
            "insert into kept values (1), (2), (3)",
        )
        made.ingest()
        made.run("delete from marked where id = 1", "delete from kept where id = 1")
        made.catch_up()
        yield made


def verify(
    world: CapturedDatabase,
    table: str,
    *,
    wait: timedelta | None = AT_ONCE,
    show_keys: bool = False,
    clock: Clock | None = None,
) -> Verification:
    (settings,) = load_merges(world.lake, world.config, [str(world.names(table).mirror)]).values()
    verifier = build_source_verifier(world.spark, world.lake, world.config, wait=wait, clock=clock)
    assert verifier is not None
    return verifier.verify(settings, f"public.{table}", show_keys=show_keys)


def tamper(world: CapturedDatabase) -> None:
    """Change, remove and add a row of the mirror of the accounts, as another engine might."""
    world.spark.sql(
        f"""
        merge into {world.names("accounts").mirror.quoted} as mirror
        using (select explode(array({EDITED}, {REMOVED}, {ADDED})) as id) as given
        on mirror.id = given.id
        when matched and given.id = {EDITED} then update set name = 'Eve'
        when matched and given.id = {REMOVED} then delete
        when not matched and given.id = {ADDED} then
            insert (id, name, amount) values (given.id, 'Mallory', 1)
        """
    )


def run_verb(
    world: CapturedDatabase,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: VerifyRequest,
) -> tuple[ExitCode, dict[str, Any]]:
    """The verb in this process, on the session that is there."""
    monkeypatch.setattr("frazil.cli.verbs.verify.open_session", lambda _: nullcontext(world.spark))
    monkeypatch.setattr("frazil.cli.invocation.configure_logs", lambda *_: None)
    document = world.folder / f"{world.document['pipeline']}.yaml"
    code = verify_mirrors(request, Invocation(document=document, output=OutputFormat.JSON))
    return code, {each["table"]: each for each in json.loads(capsys.readouterr().out)}


def run_table(
    world: CapturedDatabase,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: VerifyRequest,
) -> tuple[ExitCode, list[str]]:
    """The same as a person sees it."""
    monkeypatch.setattr("frazil.cli.verbs.verify.open_session", lambda _: nullcontext(world.spark))
    monkeypatch.setattr("frazil.cli.invocation.configure_logs", lambda *_: None)
    document = world.folder / f"{world.document['pipeline']}.yaml"
    code = verify_mirrors(request, Invocation(document=document))
    return code, capsys.readouterr().out.splitlines()


def test_mirrors_are_their_sources(
    world: CapturedDatabase,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, found = run_verb(world, monkeypatch, capsys, VerifyRequest())
    assert code is ExitCode.DONE
    keyless = found.pop("public.keyless")
    assert (keyless["agrees"], keyless["note"]) == (None, NO_MIRROR)
    rows = {name: (each["agrees"], each["rows_expected"]) for name, each in found.items()}
    assert rows == {
        "public.accounts": (True, ACCOUNTS),
        "public.orders": (True, ORDERS),
        "public.marked": (True, 2),
        "public.kept": (True, 2),
    }
    assert all(each["rows_found"] == each["rows_expected"] for each in found.values())
    accounts = found["public.accounts"]
    assert accounts["source"] == "public.accounts"
    assert "/" in accounts["position"]
    assert "stay" in found["public.kept"]["note"]


def test_the_changelog_is_compared_on_request(
    world: CapturedDatabase,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    request = VerifyRequest(("public.orders",), with_changelog=True)
    code, found = run_verb(world, monkeypatch, capsys, request)
    assert code is ExitCode.DONE
    orders = found["public.orders"]
    assert (orders["agrees"], orders["source"], orders["rows_found"]) == (True, None, ORDERS)


def test_a_mirror_that_is_behind_is_not_called_different(world: CapturedDatabase) -> None:
    world.run(
        "update orders set note = 'late' where region in ('it''s 1', 'it''s 2')",
        "delete from orders where region = 'it''s 3'",
    )
    behind = verify(world, "orders")
    assert exit_code_of([behind]) is ExitCode.ACTION_REQUIRED
    assert (behind.is_behind, behind.agrees, behind.differs) == (True, False, False)
    assert (behind.missing, behind.surplus, behind.different) == (0, 1, 2)
    assert behind.note.endswith("and no process reads the source")
    assert behind.next_step == "frazil run --once"
    world.ingest()
    captured = verify(world, "orders")
    assert captured.is_behind
    assert captured.note == "1 snapshot of the changelog not merged"
    assert captured.next_step == "frazil merge --once"
    world.merge("orders")
    assert verify(world, "orders").agrees


def test_rows_changed_removed_and_added_by_another_engine_are_found(
    world: CapturedDatabase,
) -> None:
    # Nothing is ingested, and the source has more changes, though not of this table.
    world.run("insert into orders values ('new', gen_random_uuid(), 'unrelated')")
    tamper(world)
    found = verify(world, "accounts")
    assert (found.missing, found.surplus, found.different, found.unjudged) == (1, 1, 1, 0)
    assert not found.is_behind
    assert exit_code_of([found]) is ExitCode.DIFFERENCE
    kinds = {each.kind: each for each in found.samples}
    assert kinds.keys() == set(DifferenceKind)
    assert all(each.key is None and len(each.key_hash) == 32 for each in kinds.values())
    assert len({each.key_hash for each in kinds.values()}) == 3
    assert "Eve" not in repr(found)


FALSIFIED = {
    "3": ("different", "update {mirror} set name = 'Eve' where id = 3"),
    "5": ("missing", "delete from {mirror} where id = 5"),
    "7": ("surplus", "insert into {mirror} select * from {mirror} where id = 7"),
}


@pytest.fixture(scope="module")
def falsified(world: CapturedDatabase) -> Callable[[str], None]:
    """A mirror that is what its source is, and a way for others to write to it."""
    world.run(
        "create table falsified (id int primary key, name text)",
        "insert into falsified select i, 'name ' || i from generate_series(1, 20) i",
    )
    world.ingest()
    world.merge("falsified")
    mirror = world.names("falsified").mirror.quoted

    def alter(statement: str) -> None:
        world.spark.sql(statement.format(mirror=mirror))

    return alter


def test_a_row_changed_removed_or_duplicated_by_hand_is_named_with_the_next_step(
    world: CapturedDatabase,
    falsified: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def named(*, with_changelog: bool) -> list[list[str]]:
        request = VerifyRequest(("public.falsified",), with_changelog=with_changelog)
        code, said = run_table(world, monkeypatch, capsys, request)
        assert code is ExitCode.DIFFERENCE
        assert said[-1] == "Next: frazil resync public.falsified"
        rows = [each.split() for each in said if each.startswith("public.falsified: ")]
        return [[kind, *key] for _, kind, _, *key in rows]

    for _, statement in FALSIFIED.values():
        falsified(statement)
    found = sorted([kind, key] for key, (kind, _) in FALSIFIED.items())
    assert named(with_changelog=False) == found
    assert named(with_changelog=True) == found
    monkeypatch.setenv("FRAZIL__TELEMETRY__MASK_KEYS", "true")
    assert named(with_changelog=True) == [[kind] for kind, _ in found]


def test_a_mirror_that_is_not_advanced_is_judged_as_it_is(
    world: CapturedDatabase, falsified: Callable[[str], None]
) -> None:
    falsified(FALSIFIED["3"][1])
    clock = ManualClock(datetime.now(UTC))
    began = clock.monotonic()
    # Captured, and not merged.
    world.run("update falsified set name = 'on its way' where id = 9")
    world.ingest()
    found = verify(world, "falsified", wait=None, show_keys=True, clock=clock)
    assert (found.differs, found.unjudged) == (True, 1)
    assert "3" in {each.key for each in found.samples}
    assert "9" not in {each.key for each in found.samples}
    # At the source, and not captured.
    world.run("update falsified set name = 'not even captured' where id = 11")
    found = verify(world, "falsified", wait=None, show_keys=True, clock=clock)
    assert found.differs
    assert "compared with its changelog, because the source is at" in found.note
    assert {"3"} <= {each.key for each in found.samples} <= FALSIFIED.keys()
    assert found.next_step == "frazil resync public.falsified"
    assert clock.monotonic() - began <= 2 * ABSENT_POLLS * POLL_SECONDS


def test_differences_are_separated_from_changes_in_flight(
    world: CapturedDatabase,
) -> None:
    tamper(world)
    with pipeline_running(world), writing(world):
        found = verify(world, "accounts", wait=PATIENTLY, show_keys=True)
    assert found.differs
    assert {each.kind: each.key for each in found.samples} == {
        DifferenceKind.DIFFERENT: str(EDITED),
        DifferenceKind.MISSING: str(REMOVED),
        DifferenceKind.SURPLUS: str(ADDED),
    }
    assert (found.missing, found.surplus, found.different, found.unjudged) == (1, 1, 1, 0)


@contextmanager
def pipeline_running(world: CapturedDatabase) -> Iterator[None]:
    """Ingest and merge, each in a thread of its own."""
    stop = StopRequest()
    failures: list[Exception] = []
    loop = build_ingest_loop(
        world.spark,
        world.config,
        world.capture(),
        stop=stop,
        on_report=lambda _report: None,
        on_error=lambda error, _step: failures.append(error),
    )

    def merge() -> None:
        while not stop.is_set():
            world.merge("accounts")
            stop.wait(0.2)

    with running(stop, lambda: loop.run(once=False), merge):
        yield
    assert not failures


@contextmanager
def writing(world: CapturedDatabase) -> Iterator[None]:
    """A writer that takes accounts away and adds others instead."""
    stop = threading.Event()
    chance = random.Random(7)  # noqa: S311 - no secret

    def write() -> None:
        with psycopg.connect(world.database.dsn.value, autocommit=True) as connection:
            while not stop.wait(0.2):
                number = chance.randint(1, FIRST_UNTOUCHED - 1)
                connection.execute("delete from accounts where id = %s", (number,))
                connection.execute(
                    "insert into accounts values (%s, %s, %s)",
                    (number, chance.choice(["a", "b"]), chance.randint(1, 9)),
                )

    with running(stop, write):
        yield


@contextmanager
def running(stop: threading.Event, *work: Callable[[], object]) -> Iterator[None]:
    failed: list[BaseException] = []

    def guarded(each: Callable[[], object]) -> None:
        try:
            each()
        except BaseException as error:  # noqa: BLE001 - raised again in the test's own thread
            failed.append(error)
            stop.set()

    threads = [threading.Thread(target=guarded, args=[each]) for each in work]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    if failed:
        raise failed[0]


def test_columns_that_come_and_go_are_compared_while_both_have_them(
    world: CapturedDatabase,
) -> None:
    world.run(
        "create table changing (id int primary key, gone text, stays text)",
        "insert into changing values (1, 'a', 'b'), (2, 'c', 'd')",
    )
    world.ingest()
    world.merge("changing")
    world.run("alter table changing drop column gone", "alter table changing add column new int")
    ahead = verify(world, "changing")
    assert ahead.agrees
    assert (ahead.columns, ahead.left_out) == (("id", "stays"), ("gone",))
    assert ahead.note == "not in the mirror yet: new"
    world.run("update changing set new = id, stays = 'e' where id = 1")
    world.ingest()
    world.merge("changing")
    after = verify(world, "changing")
    assert after.agrees
    assert (set(after.columns), after.left_out) == ({"id", "stays", "new"}, ("gone",))
    assert after.note == ""


def test_a_table_that_is_not_the_one_captured_is_refused(world: CapturedDatabase) -> None:
    world.run("create table replaced (id int primary key)", "insert into replaced values (1)")
    world.ingest()
    world.merge("replaced")
    world.run("drop table replaced", "create table replaced (id int primary key)")
    world.run("alter publication " + world.document["pipeline"] + "_frazil add table replaced")
    with pytest.raises(SourceReplacedError, match="not the one that was captured"):
        verify(world, "replaced")


def test_a_paused_table_is_behind_while_it_is_paused(world: CapturedDatabase) -> None:
    world.run("create table paused (id int primary key, day date)", "insert into paused values (1)")
    world.ingest()
    world.merge("paused")
    world.run("insert into paused values (2, 'today'), (3, 'infinity')")
    world.ingest()
    world.run("delete from paused where id = 3")
    found = verify(world, "paused", wait=PATIENTLY)
    assert exit_code_of([found]) is ExitCode.ACTION_REQUIRED
    assert (found.is_behind, found.missing) == (True, 1)
    assert "the table is not captured: " in found.note
    assert "infinity" not in found.note
    assert found.next_step.startswith("set on_unrepresentable")
