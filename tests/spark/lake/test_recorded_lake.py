"""A lake that an earlier release wrote is read, verified and continued by this one.

``tests/golden/lake-0.1.0.tar.gz`` holds the objects of a lake that release 0.1.0 captured from a
real Postgres; ``lake-0.1.0.json`` says what is in them. ``tests/support/lake/recorded.py`` made
both, with the code of that release. They are never changed: a release that writes something new
records a lake of its own.
"""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import uuid4

import pyarrow as pa
import pytest
from pyarrow import fs

from frazil.changelog.table import ChangelogTable
from frazil.clients.iceberg.commit.strict_commit import CommitOutcome
from frazil.clients.iceberg.lake import Lake
from frazil.clients.iceberg.write.arrow_schema import arrow_schema
from frazil.clients.iceberg.write.task_writer import TaskWriter
from frazil.clients.spark.session import attach_session
from frazil.codec.key_index.head import read_head
from frazil.config import load_config
from frazil.hooks import SystemClock, SystemRandomness
from frazil.ledger.rows import SCHEMA
from frazil.ledger.table import Ledger
from frazil.ledger.table_state import Copying, Gone, Paused, ResyncRequired, Streaming
from frazil.merge.merger import Merger
from frazil.merge.report import MergeAction
from frazil.mirror.index.loading import HEAD_PROPERTY
from frazil.model.cause import Cause
from frazil.model.change import SequenceNumber
from frazil.model.marker import MarkerRole
from frazil.model.postgres.lsn import format_lsn, parse_lsn
from frazil.model.table_name import parse_table_name
from frazil.pipeline.tables.captured_mirrors import ledger_name
from frazil.pipeline.tables.merge_settings import load_merges
from frazil.verify.mirror_verifier import verify_mirror

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from frazil.clients.iceberg.table import LakeTable
    from frazil.config import Config
    from frazil.demo.services import ObjectStore
    from frazil.ledger.table_state import TableState
    from frazil.merge.planning.settings import MergeSettings
    from frazil.model.marker import Marker

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.fault("O10")]

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
BUCKET, RELEASE = "recorded-lake", "0.1.0"
DESCRIBED: dict[str, Any] = json.loads((GOLDEN / f"lake-{RELEASE}.json").read_text("utf-8"))
TABLES: dict[str, Any] = DESCRIBED["tables"]
# The position of new changes is this far after the recorded one.
STEP = 4096

# An update that is older than the delete of its key.
LATE = "LATE"

Row = dict[str, Any]

# Changes that come after those of the recorded lake, by mirror: keys whose rows are in files and
# runs of the earlier release, and new ones.
CHANGES: dict[str, list[tuple[str, Row]]] = {
    "public.items": [
        ("UPDATE", {"code": "renamed 1", "region": "west", "quantity": 1}),
        ("UPDATE", {"code": "new 301", "region": "east", "quantity": 2}),
        ("DELETE", {"code": "new 100"}),
        ("INSERT", {"code": "newest", "region": "north", "quantity": 3}),
    ],
    "public.people": [
        ("UPDATE", {"id": 1, "name": "again"}),
        ("DELETE", {"id": 100}),
        ("INSERT", {"id": 900, "name": "newest"}),
    ],
    "public.orders": [
        ("UPDATE", {"id": 1, "line": 1, "price": Decimal("7.50")}),
        ("DELETE", {"id": 200, "line": 1}),
        ("INSERT", {"id": 900, "line": 1, "price": Decimal("9.50")}),
    ],
    "public.counters": [
        ("UPDATE", {"id": 1, "n": 1}),
        ("DELETE", {"id": 4}),
        ("INSERT", {"id": 900, "n": 900}),
        (LATE, {"id": 5, "n": 5}),
    ],
    "public.evolved": [
        ("UPDATE", {"id": 1, "label": "again"}),
        ("DELETE", {"id": 2}),
        ("INSERT", {"id": 900, "label": "newest"}),
    ],
    "public.emptied": [("UPDATE", {"id": 9, "n": 1}), ("INSERT", {"id": 900, "n": 900})],
    "public.copied_again": [("DELETE", {"id": 4}), ("INSERT", {"id": 900, "n": 900})],
}


@dataclass
class RecordedLake:
    """The objects in a store, its tables in a catalog, and the pipeline that goes on with them."""

    spark: SparkSession
    config: Config
    lake: Lake
    files: fs.S3FileSystem
    # Loaded before a test writes.
    states: tuple[TableState, ...]
    merges: dict[str, MergeSettings]

    def open(self, table: str) -> LakeTable:
        return self.lake.open(parse_table_name(table, catalog=self.config.catalog.name))

    def rows(self, table: str) -> list[Row]:
        found = self.open(table).read().selectExpr("to_json(struct(*)) as row").collect()
        return in_order([json.loads(row["row"]) for row in found])

    def read(self, location: str) -> bytes:
        parts = urlsplit(location)
        with self.files.open_input_stream(
            f"{parts.netloc}{parts.path}", compression=None
        ) as stream:
            return bytes(stream.read())


@pytest.fixture(scope="module")
def recorded(
    spark: SparkSession, object_store: ObjectStore, tmp_path_factory: pytest.TempPathFactory
) -> RecordedLake:
    """The recorded objects at the location they name, registered in a new catalog."""
    folder = tmp_path_factory.mktemp("recorded")
    files = fs.S3FileSystem(
        access_key=object_store.access_key,
        secret_key=object_store.secret_key,
        endpoint_override=object_store.endpoint,
        region=object_store.region,
        allow_bucket_creation=True,
    )
    _upload(files)
    config = _load(object_store, folder)
    catalog = config.catalog.name
    attach_session(spark, config)
    for namespace in {name.partition(".")[0] for name in TABLES}:
        spark.sql(f"create namespace if not exists {catalog}.`{namespace}`")
    for name, described in TABLES.items():
        spark.sql(
            f"call {catalog}.system.register_table(table => '{name}', "
            f"metadata_file => '{described['metadata']}')"
        )
    lake = Lake(spark, catalog)
    return RecordedLake(
        spark,
        config,
        lake,
        files,
        states=Ledger.open(lake, ledger_name(config)).table_states(),
        merges=load_merges(lake, config, list(CHANGES)),
    )


def _upload(files: fs.S3FileSystem) -> None:
    files.create_dir(BUCKET)
    with tarfile.open(GOLDEN / f"lake-{RELEASE}.tar.gz") as archive:
        for member in archive:
            content = archive.extractfile(member)
            assert content is not None
            with files.open_output_stream(f"{BUCKET}/{RELEASE}/{member.name}") as stream:
                stream.write(content.read())


def _load(store: ObjectStore, folder: Path) -> Config:
    catalog = f"recorded_{uuid4().hex[:8]}"
    document = DESCRIBED["document"] | {
        "catalog": {
            "name": catalog,
            "kind": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"s3://{BUCKET}/{RELEASE}",
        },
        "storage": {
            "s3": {
                "endpoint": store.endpoint,
                "path_style": True,
                "access_key_id": store.access_key,
                "secret_access_key": store.secret_key,
            }
        },
        # The server is gone; reading and merging do not need it.
        "source": {"kind": "postgres", "dsn": "postgresql://frazil@127.0.0.1:1/shop"},
    }
    path = folder / "frazil.yaml"
    path.write_text(json.dumps(document))
    return load_config(path, environ={}).config


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


def recorded_rows(table: str) -> list[Row]:
    return in_order([json.loads(row) for row in TABLES[table]["rows"]])


def after(marker: Marker) -> Marker:
    """The marker of the next batch of the same source."""
    position = format_lsn(parse_lsn(str(marker.position)) + STEP)
    return replace(marker, position=position, batch="continued", snapshot=None)


def append(recorded: RecordedLake, table: str, changes: list[tuple[str, Row]]) -> None:
    """The next batch of a changelog, as an ingest commits it."""
    changelog = ChangelogTable(recorded.open(table))
    found = changelog.position()
    assert found is not None
    goal = after(found)
    lsn = parse_lsn(str(goal.position))
    rows = [
        {
            **row,
            # With order per_key a change may be older than what the mirror has.
            "cdc_operation": "UPDATE" if operation == LATE else operation,
            "cdc_sequence_number": str(
                SequenceNumber(goal.epoch, 0 if operation == LATE else lsn, ordinal)
            ),
            "cdc_lsn": goal.position,
        }
        for ordinal, (operation, row) in enumerate(changes)
    ]
    target = changelog.table.load_write_target()
    writer = TaskWriter(target, clock=SystemClock(), randomness=SystemRandomness())
    writer.write(pa.RecordBatch.from_pylist(rows, schema=arrow_schema(target.schema)))
    files = writer.close()
    receipt = changelog.append(files, start=found.position, goal=goal)
    assert receipt.outcome is CommitOutcome.COMMITTED
    repeated = changelog.append(files, start=found.position, goal=goal)
    assert repeated.outcome is CommitOutcome.ALREADY_DONE


def merged(mirror: str, key: tuple[str, ...]) -> list[Row]:
    """The recorded rows after ``CHANGES``."""
    is_soft = mirror == "public.people"
    rows = {tuple(row[name] for name in key): row for row in recorded_rows(mirror)}
    for operation, row in CHANGES[mirror]:
        values = {
            name: float(value) if isinstance(value, Decimal) else value
            for name, value in row.items()
        }
        found = tuple(row[name] for name in key)
        if operation == "DELETE" and is_soft:
            rows[found] = rows[found] | {"cdc_deleted": True}
        elif operation == "DELETE":
            del rows[found]
        elif operation != LATE:
            rows[found] = values | ({"cdc_deleted": False} if is_soft else {})
    return without_sequence(list(rows.values()))


def without_sequence(rows: list[Row]) -> list[Row]:
    """Rows without the column that a mirror with order per_key has in addition."""
    return in_order(
        [{name: row[name] for name in row if name != "cdc_sequence_number"} for row in rows]
    )


@pytest.mark.parametrize("table", TABLES)
def test_a_table_opens_and_its_markers_are_valid(recorded: RecordedLake, table: str) -> None:
    properties = TABLES[table]["properties"]
    found = recorded.open(table)
    roles = [role for role in MarkerRole if role.property_name in properties]
    assert roles, "every recorded table has a marker"
    for role in roles:
        marker, text = found.load_marker(role), json.loads(properties[role.property_name])
        assert marker is not None
        assert (marker.position, marker.batch, marker.epoch, marker.source) == tuple(
            text[name] for name in ("position", "batch", "epoch", "source")
        )
        assert marker.witness == text.get("witness")


def test_the_ledger_gives_the_states_that_were_recorded(recorded: RecordedLake) -> None:
    states = {each.table: each for each in recorded.states}
    raw = DESCRIBED["ledger states"]
    assert {each["state"] for each in raw.values()} >= {"live", "held", "resync needed", "left"}
    # Removed tables are not listed.
    assert set(states) == {name for name, each in raw.items() if each["state"] != "left"}
    for name, state in states.items():
        assert state.identity == raw[name]["source_identity"]
    found = {name.removeprefix("public."): each.state for name, each in states.items()}
    for name in (*(each.removeprefix("public.") for each in CHANGES), "keyless"):
        assert found.pop(name) == Streaming()
    expected = {name: raw[f"public.{name}"]["state_position"] for name in found}
    assert found.pop("dropped") == Gone(expected["dropped"])
    paused = found.pop("widened")
    assert isinstance(paused, Paused)
    assert (paused.position, paused.cause.code) == (expected["widened"], "FRZ-SCH-01")
    assert "on_widen is stop" in paused.cause.reason
    assert paused.cause.remedy
    assert found.pop("recreated") == ResyncRequired(
        expected["recreated"], raw["public.recreated"]["state_reason"]
    )
    copying = found.pop("unlogged")
    assert isinstance(copying, Copying)
    assert copying.cause is not None
    assert copying.cause.code is not None
    assert not found


def test_the_ledger_is_continued_and_gets_the_columns_of_this_release(
    recorded: RecordedLake,
) -> None:
    ledger = Ledger.open(recorded.lake, ledger_name(recorded.config))
    before = {each.table: each for each in recorded.states}
    found = ledger.acknowledged()
    assert found is not None
    assert found.witness is not None
    paused = replace(
        before["public.recreated"], state=Paused("0/1", Cause("FRZ-SCH-01", "why", "what to do"))
    )
    receipt = ledger.record([], start=found.position, goal=after(found), table_states=[paused])
    assert receipt.outcome is CommitOutcome.COMMITTED
    assert {each.table: each for each in ledger.table_states()} == before | {paused.table: paused}
    names = [column.name for column in ledger.table.load_version().schema.columns()]
    assert names == [field.name for field in SCHEMA.fields]
    rows = ledger.table.read()
    assert rows.where("kind = 'batch'").count() == DESCRIBED["ledger batch rows"]
    assert rows.where("state_code is not null").count() == 1


@pytest.mark.parametrize("mirror", CHANGES)
def test_a_mirror_is_verified_and_merged_further(recorded: RecordedLake, mirror: str) -> None:
    settings = recorded.merges[mirror]
    assert recorded.rows(mirror) == recorded_rows(mirror)
    assert verify_mirror(recorded.spark, recorded.lake, settings).agrees
    head = recorded.open(mirror).load_state().head
    assert head is not None
    manifest, _ = read_head(recorded.read(head.summary[HEAD_PROPERTY]))
    assert {
        "runs": len(manifest.runs),
        "young entries": manifest.young_entries,
        "files": len(manifest.files),
    } == TABLES[mirror]["index"]
    append(recorded, f"{mirror}_changelog", CHANGES[mirror])
    report = Merger(recorded.spark, recorded.lake, settings).merge()
    assert len(report.commits) == 1
    assert report.repairs == ()
    operations = [operation for operation, _ in CHANGES[mirror]]
    assert report.counts[MergeAction.LATE] == operations.count(LATE)
    assert report.counts[MergeAction.UPDATE] == operations.count("UPDATE")
    assert report.counts[MergeAction.DELETE] == operations.count("DELETE")
    assert without_sequence(recorded.rows(mirror)) == merged(mirror, settings.key)
