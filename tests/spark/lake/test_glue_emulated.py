"""Glue as far as an emulated endpoint goes: commits land, and a stale one is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from moto.server import ThreadedMotoServer

from frazil.clients.iceberg.commit.strict_commit import CommitOutcome, FileChanges, StrictCommit
from frazil.clients.iceberg.lake import Lake, TableDefinition
from frazil.clients.spark.session import attach_session
from frazil.config import load_config
from frazil.errors import FencedError
from frazil.model.marker import Marker, MarkerMove, MarkerRole
from frazil.model.table_name import TableName
from tests.support.lake.files import SCHEMA, FileWriter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.demo.services import ObjectStore

pytestmark = pytest.mark.spark


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        yield "http://{}:{}".format(*server.get_host_and_port())
    finally:
        server.stop()


def move(start: int | None, goal: int, batch: str) -> MarkerMove:
    marker = Marker(pipeline="p", source="s", position=str(goal), batch=batch)
    return MarkerMove(MarkerRole.INGEST, None if start is None else str(start), marker)


def test_commits_land_in_glue_and_a_stale_one_is_fenced(
    spark: SparkSession, object_store: ObjectStore, endpoint: str, tmp_path: Path
) -> None:
    name = f"glue_{uuid4().hex[:8]}"
    document = tmp_path / "glue.yaml"
    document.write_text(
        f"pipeline: tests\n"
        f"catalog: {{name: {name}, kind: glue, region: us-east-1, "
        f"warehouse: 's3://{object_store.bucket}/glue', "
        f"properties: {{glue.endpoint: '{endpoint}'}}}}\n"
        f"storage: {{s3: {{endpoint: '{object_store.endpoint}', path_style: true, "
        f"access_key_id: '{object_store.access_key}', "
        f"secret_access_key: '{object_store.secret_key}'}}}}\n"
        "tables: [{mirror: a.b, changelog: a.c, key: [id]}]\n"
    )
    attach_session(spark, load_config(document, environ={}).config)
    definition = TableDefinition(schema=SCHEMA)
    table = Lake(spark, name).ensure_table(TableName(name, ("emulated",), "numbers"), definition)
    location = table.load_state().location
    files = FileWriter(object_store)
    for number in range(3):
        added = FileChanges(added=(files.write(location, [number]),))
        start = None if number == 0 else number - 1
        receipt = table.append(StrictCommit(move=move(start, number, f"b{number}"), changes=added))
        assert receipt.outcome is CommitOutcome.COMMITTED
    with pytest.raises(FencedError):
        table.append(StrictCommit(move=move(1, 2, "of a rival")))
    assert sorted(row.id for row in table.read().collect()) == [0, 1, 2]
