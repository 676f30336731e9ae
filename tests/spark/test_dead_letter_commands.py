"""``frazil dlq``: letters are listed, shown and dropped; nothing else of their table moves."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from frazil.cli.exit_codes import ExitCode
from frazil.clients.iceberg.lake import Lake
from frazil.clients.spark.session import attach_session
from frazil.config import load_config
from frazil.ledger.dead_letters import DeadLetterTable
from frazil.model.dead_letter import letter_id
from frazil.model.marker import MarkerRole
from frazil.model.rejected_record import RejectedRecord, RejectReason
from frazil.model.table_name import TableName
from tests.support.process.jvms import QUICK_JAVA
from tests.support.process.session_commands import run_on

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from pyspark.sql import SparkSession

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
