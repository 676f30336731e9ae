"""The same merges on every kind of catalog and store, read by people who share nothing with us."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from frazil.clients.iceberg.lake import BOUNDED_METADATA
from frazil.merge.index_operations import load_index_facts, rebuild_index, verify_index
from frazil.merge.merger import Merger
from frazil.merge.planning.settings import IndexSettings, MergeSettings
from frazil.model.table_name import TableName
from tests.support.lake.catalogs import Kind, LakeCase
from tests.support.lake.other_readers import ids_by_duckdb, ids_by_pyiceberg
from tests.support.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.demo.services import ObjectStore

pytestmark = pytest.mark.spark

CASES = [*((kind, 3) for kind in Kind), (Kind.REST_S3, 2), (Kind.SEAWEED, 2)]
# All kinds are in test_lake_contract; merges of other tests are in files, by SQLite and by REST.
CI_CASES = [(Kind.REST_S3, 3), (Kind.POSTGRES_S3, 3), (Kind.SEAWEED, 2)]


@pytest.mark.fault("X11")
@pytest.mark.parametrize(
    "kind_and_version",
    sampled(CASES, ci=CI_CASES),
    ids=lambda each: f"{each[0].value} v{each[1]}",
)
def test_merges_with_runs_and_deletes_are_right_for_every_reader(
    lake_of: Callable[[Kind], LakeCase],
    spark: SparkSession,
    object_store: ObjectStore,
    tmp_path: Path,
    kind_and_version: tuple[Kind, int],
) -> None:
    kind, version = kind_and_version
    case = lake_of(kind)
    names = [TableName(case.catalog, ("contract",), f"t_{uuid4().hex[:12]}") for _ in range(2)]
    changelog, mirror = names
    case.lake.ensure_namespace(changelog)
    properties = ", ".join(f"'{key}'='{value}'" for key, value in BOUNDED_METADATA.items())
    spark.sql(
        f"create table {changelog.quoted} (id bigint, v string, op string, seq bigint) "
        f"using iceberg tblproperties ({properties})"
    )
    settings = MergeSettings(
        changelog=changelog,
        mirror=mirror,
        key=("id",),
        sequence="seq",
        operation="op",
        format_version=version,
        # Every merge flushes its entries, and every second one merges runs.
        index=IndexSettings(young_entries=1, max_runs=1, cache_dir=tmp_path / "cache"),
    )
    merger = Merger(spark, case.lake, settings)
    for at in range(3):
        spark.sql(
            f"insert into {changelog.quoted} select id * {at + 1}, 'v{at}', "
            f"case when id = 2 then 'D' else 'U' end, {at} * 100 + id from range(10)"
        )
        merger.merge()
    # Two came back with the second merge; four and six went with the last that named them.
    expected = sorted({*range(10), *range(0, 20, 2), *range(0, 30, 3)} - {4, 6})
    metadata = case.lake.open(mirror).load_metadata_location()
    assert ids_by_pyiceberg(metadata, object_store) == expected
    assert ids_by_duckdb(metadata, object_store) == expected
    facts = load_index_facts(spark, case.lake, settings)
    assert (facts.state, len(facts.runs)) == ("current", 1)
    assert verify_index(spark, case.lake, settings).is_sound
    assert rebuild_index(spark, case.lake, settings).rebuilt
    assert verify_index(spark, case.lake, settings).is_sound
    assert merger.merge().commits == ()
