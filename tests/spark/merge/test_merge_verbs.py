"""``merge`` in separate processes, alone and concurrently; commands that inspect its tables."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING, Any

import httpx
import psutil
import pytest

from tests.support.merge.shop import MergeShop

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> MergeShop:
    return MergeShop.open(spark, tmp_path)


def wait_for(process: subprocess.Popen[str], event: str) -> dict[str, Any]:
    """The first log event of this name."""
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if line.startswith("{"):
            found: dict[str, Any] = json.loads(line)
            if found["event"] == event:
                return found
    pytest.fail(f"it ended without {event!r}:\n{''.join(seen)}")


def wait_until_exists(file: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not file.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_plan_merge_and_verify_agree(shop: MergeShop) -> None:
    shop.change("users", (1, "Ada", "INSERT"), (2, "Grace", "INSERT"), (3, "Edsger", "I"))
    shop.change("users", (2, None, "DELETE"), (1, "Ada Lovelace", "u"))
    shop.change("orders", (7, "a pen", "INSERT"))

    found = shop.run_json_here("plan", "--exit-code", status=4)
    assert found["source"] is None
    plans = {each["table"]: each for each in found["tables"]}
    assert plans["public.users"]["plan"]["rows"] == 5
    assert plans["public.users"]["plan"]["creates_mirror"]["format_version"] == 3
    assert plans["public.orders"]["problem"] is None

    merged = {each["table"]: each for each in shop.run_json_here("merge", "--once")}
    assert {each["state"] for each in merged.values()} == {"done"}
    users = merged["public.users"]["merged"]
    assert (users["rows_read"], users["counts"]["insert"]) == (5, 2)
    assert shop.rows("users") == {1: "Ada Lovelace", 3: "Edsger"}
    assert shop.rows("orders") == {7: "a pen"}

    assert shop.agrees("users")

    shop.spark.sql(f"update {shop.catalog}.public.users set name = 'Eve' where id = 1")
    differing = shop.run_here("verify")
    assert differing.returncode == 4, differing.stderr
    lines = differing.stdout.splitlines()
    assert lines[1].split()[:2] == ["public.users", "differs"]
    assert lines[2].split()[:2] == ["public.orders", "agrees"]
    assert lines[3].startswith("public.users: different  ")
    assert "Eve" not in differing.stdout + differing.stderr


def test_a_table_with_action_required_does_not_block_the_other(shop: MergeShop) -> None:
    shop.change("users", (1, "one", "INSERT"))
    shop.change("orders", (1, "one", "INSERT"))
    shop.merge("users")
    shop.merge("orders")
    name = f"{shop.catalog}.public.users"
    shop.spark.sql(f"alter table {name} unset tblproperties ('frazil.merge')")
    shop.change("users", (2, "two", "INSERT"))
    shop.change("orders", (2, "two", "INSERT"))
    results = {each["table"]: each for each in shop.run_json_here("merge", "--once", status=3)}
    assert results["public.users"]["state"] == "stopped"
    assert results["public.users"]["problem"]["code"] == "FRZ-LAK-09"
    assert "position set" in results["public.users"]["problem"]["remedy"]
    assert results["public.orders"]["merged"]["counts"]["insert"] == 1
    assert shop.rows("orders") == {1: "one", 2: "two"}


# In test_run_process the same loops, server and JVM are those of ``run``.
@pytest.mark.deep
@pytest.mark.fault("K10")
def test_a_service_merges_on_its_interval_and_ends_with_its_jvm(shop: MergeShop) -> None:
    shop.change("users", (1, "one", "INSERT"))
    shop.change("orders", (1, "one", "INSERT"))
    with shop.start("merge") as process:
        try:
            address = wait_for(process, "serving")["address"]
            with httpx.Client(base_url=f"http://{address}", trust_env=False, timeout=60) as web:
                assert web.get("/healthz").status_code == 200
                wait_for(process, "merge committed")
                wait_for(process, "merge committed")
                shop.change("users", (2, "two", "INSERT"))
                assert wait_for(process, "merge committed")["table"] == "public.users"
                assert web.get("/readyz").json() == {
                    "ready": True,
                    "checks": {"spark": {"ready": True}, "catalog": {"ready": True}},
                }
                shown = web.get("/metrics").text
            assert (
                'frazil_merge_rows_total{action="insert",pipeline="shop",table="public.users"} 2.0'
                in shown
            )
            children = psutil.Process(process.pid).children()
            (jvm,) = [each for each in children if "java" in each.name()]
            jvm.kill()
            _, said = process.communicate(timeout=240)
        finally:
            process.kill()
    assert process.returncode == 1, said
    assert said.splitlines()[-1].startswith(
        "error FRZ-OPS-02: the JVM that Spark runs in has ended"
    )
    assert shop.rows("users") == {1: "one", 2: "two"}


@pytest.mark.fault("O1")
def test_a_stop_during_a_commit_finishes_it_and_begins_no_other(
    spark: SparkSession, tmp_path: Path
) -> None:
    shop = MergeShop.open(spark, tmp_path, max_rows=1)
    for number in range(4):
        shop.change("users", (number, str(number), "INSERT"))
    shop.merge("users")
    for number in range(4, 8):
        shop.change("users", (number, str(number), "INSERT"))
    gate = tmp_path / "gate"
    gate.touch()
    points = f"commit.staged=hold({gate})@1"
    arguments = ("merge", "--table", "public.users")
    with shop.start(*arguments, FRAZIL_FAILPOINTS=points) as process:
        try:
            wait_until_exists(tmp_path / "gate.reached", process)
            process.send_signal(signal.SIGTERM)
            wait_for(process, "stopping")
            gate.unlink()
            assert process.wait(240) == 0
        finally:
            gate.unlink(missing_ok=True)
            process.kill()
    assert sorted(shop.rows("users")) == [0, 1, 2, 3, 4]
    assert shop.agrees("users")
    shop.merge("users")
    assert sorted(shop.rows("users")) == list(range(8))


# What signals do to the process is tested without Spark in tests/unit/cli/test_stopping.py.
@pytest.mark.deep
@pytest.mark.fault("O1")
def test_the_second_signal_ends_process_and_jvm_at_once_and_nothing_is_half_done(
    shop: MergeShop, tmp_path: Path
) -> None:
    shop.change("users", (1, "one", "INSERT"))
    gate = tmp_path / "gate"
    gate.touch()
    arguments = ("merge", "--once", "--table", "public.users")
    points = f"commit.staged=hold({gate})@1"
    with shop.start(*arguments, FRAZIL_FAILPOINTS=points) as process:
        try:
            wait_until_exists(tmp_path / "gate.reached", process)
            process.send_signal(signal.SIGINT)
            # Two signals that nobody has looked at yet are one.
            wait_for(process, "stopping")
            assert process.poll() is None
            process.send_signal(signal.SIGINT)
            # The JVM holds the other end of these pipes: they close when it is gone as well.
            process.communicate(timeout=240)
            assert process.returncode == 130
        finally:
            process.kill()
    shop.merge("users")
    assert shop.rows("users") == {1: "one"}


@pytest.mark.deep
@pytest.mark.fault("O1")
def test_a_merge_that_outlasts_the_grace_is_abandoned(shop: MergeShop, tmp_path: Path) -> None:
    shop.change("users", (1, "one", "INSERT"))
    text = shop.document.read_text()
    shop.document.write_text(f"{text}shutdown_grace: 1s\n")
    gate = tmp_path / "gate"
    gate.touch()
    points = f"commit.staged=hold({gate})@1"
    with shop.start("merge", "--table", "public.users", FRAZIL_FAILPOINTS=points) as process:
        try:
            wait_until_exists(tmp_path / "gate.reached", process)
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=240)
        finally:
            process.kill()
    assert process.returncode == 0, said
    assert "abandoning what is not committed" in said
    assert "Traceback" not in said
    shop.merge("users")
    assert shop.rows("users") == {1: "one"}


# The same race is in test_merge_crashes, and what the command makes of it in test_commands.
@pytest.mark.deep
@pytest.mark.fault("C1")
def test_two_instances_that_overlap_never_both_commit(spark: SparkSession, tmp_path: Path) -> None:
    shop = MergeShop.open(spark, tmp_path, max_rows=2)
    shop.change("users", (0, "zero", "INSERT"))
    shop.merge("users")
    for number in range(1, 9):
        shop.change("users", (number, "new", "INSERT"), (number - 1, f"of {number}", "UPDATE"))
    gate = tmp_path / "gate"
    gate.touch()
    arguments = ("merge", "--once", "--table", "public.users")
    # The first is suspended at its first commit; the second does all the work.
    with shop.start(*arguments, FRAZIL_FAILPOINTS=f"commit.staged=hold({gate})@1") as first:
        try:
            wait_until_exists(tmp_path / "gate.reached", first)
            second = shop.run_here(*arguments)
            gate.unlink()
            _, said = first.communicate(timeout=120)
        finally:
            gate.unlink(missing_ok=True)
            first.kill()
    assert second.returncode == 0, second.stderr
    assert first.returncode == 75, said
    assert "FRZ-LAK-07" in said
    expected = {number: f"of {number + 1}" for number in range(8)} | {8: "new"}
    assert shop.rows("users") == expected
    assert shop.agrees("users")


# Merges race in one process in test_merge_concurrency.
@pytest.mark.deep
def test_instances_that_race_leave_the_mirror_right(spark: SparkSession, tmp_path: Path) -> None:
    shop = MergeShop.open(spark, tmp_path, max_rows=1)
    for number in range(12):
        shop.change("users", (number % 5, f"at {number}", "UPDATE"))
    arguments = ("merge", "--once", "--table", "public.users")
    processes = [shop.start(*arguments) for _ in range(2)]
    ended = [(process.communicate(timeout=240), process.returncode) for process in processes]
    assert all(code in {0, 75} for _, code in ended), ended
    assert 0 in {code for _, code in ended}, ended
    shop.merge("users")
    assert shop.rows("users") == {0: "at 10", 1: "at 11", 2: "at 7", 3: "at 8", 4: "at 9"}
    assert shop.agrees("users")


def test_the_index_is_shown_checked_and_rebuilt(shop: MergeShop) -> None:
    shop.change("users", (1, "one", "INSERT"), (2, "two", "INSERT"))
    shop.merge("users")
    built = shop.run_here("index", "rebuild", "public.users")
    assert built.returncode == 0, built.stderr
    assert built.stdout.splitlines()[0].split() == ["FACT", "VALUE"]
    shown = shop.run_json_here("index", "show", "public.users")
    assert (shown["state"], shown["entries"], shown["key"]) == ("current", 2, ["id"])
    assert shop.run_json_here("index", "verify", "public.users") == {
        "rows": 2,
        "missing": 0,
        "surplus": 0,
    }
    shop.change("users", (2, None, "DELETE"))
    assert shop.merge("users").repairs == ()
    assert shop.rows("users") == {1: "one"}


def test_a_catalog_that_stays_unavailable_ends_a_single_run_with_1(shop: MergeShop) -> None:
    text = shop.document.read_text()
    away = text.replace(f"sqlite:///{shop.folder}/catalog.db", "sqlite:////nowhere/at/all.db")
    # The session has the catalog of this shop already.
    shop.document.write_text(away.replace(f"name: {shop.catalog}", f"name: away_{shop.catalog}"))
    results = shop.run_json_here("merge", "--once", "--table", "public.users", status=1)
    assert results[0]["problem"]["code"] == "FRZ-LAK-03"
    assert results[0]["failures"] == 2
