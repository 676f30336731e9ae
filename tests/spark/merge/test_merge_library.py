"""``frazil.merge_table`` with the caller's session, as in a notebook."""

from __future__ import annotations

import json
import runpy
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

import frazil
from frazil.clients.iceberg.commit.strict_commit import StrictCommit
from frazil.clients.iceberg.lake import Lake
from frazil.clients.spark.session import attach_session
from frazil.config import load_config
from frazil.errors import ConfigError, FrazilError, TableNotFoundError
from frazil.model.marker import Marker, MarkerRole, Override
from frazil.model.recorded_version import NEWER_STEP
from frazil.model.table_facts import COLUMNS_PROPERTY
from frazil.model.table_name import TableName
from tests.support.merge.names import TablePair

pytestmark = pytest.mark.spark

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "merge_table.py"


@pytest.fixture
def catalog(spark: SparkSession, tmp_path: Path) -> str:
    """A catalog that was never used."""
    name = f"n_{uuid4().hex[:8]}"
    document = tmp_path / "notebook.yaml"
    document.write_text(
        f"pipeline: notebook\ncatalog: {{name: {name}, kind: sql, uri: 'sqlite:///{tmp_path}/c.db',"
        f" warehouse: 'file://{tmp_path}/wh'}}\ntables: [{{mirror: a.b, changelog: a.c, key: [i]}}]"
    )
    attach_session(spark, load_config(document, environ={}).config)
    return name


def make_changelog(spark: SparkSession, catalog: str, rows: str) -> TablePair:
    """A changelog with our columns, and the names of both tables."""
    spark.sql(f"create namespace if not exists {catalog}.public")
    name = f"{catalog}.public.users_changelog"
    spark.sql(
        f"create table {name} (id bigint, name string, cdc_operation string, "
        "cdc_sequence_number string, cdc_timestamp timestamp) using iceberg"
    )
    spark.sql(f"insert into {name} select *, current_timestamp() from values {rows}")
    return {"changelog": name, "mirror": f"{catalog}.public.users"}


def test_the_example_runs_in_an_existing_session(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    assert SparkSession.getActiveSession() is not None
    runpy.run_path(str(EXAMPLE))
    rows = spark.table("lake.example.users").orderBy("id").collect()
    assert [(row.id, row.name, row.lsn) for row in rows] == [
        (1, "Ada Lovelace", 105),
        (2, "Grace", 102),
    ]
    said = capsys.readouterr().out
    assert "first merge: 3 changes" in said
    assert "'update': 1" in said
    assert spark.range(3).count() == 3


def test_a_changelog_of_ours_is_merged_in_its_order(
    spark: SparkSession, catalog: str, tmp_path: Path
) -> None:
    tables = make_changelog(spark, catalog, "(1, 'one', 'INSERT', '1'), (2, 'two', 'INSERT', '2')")
    changelog = Lake(spark, catalog).open(TableName(catalog, ("public",), "users_changelog"))
    ours = Marker(pipeline="p", source="a server", position="0/2", batch="b")
    changelog.commit(StrictCommit(move=Override(MarkerRole.INGEST, None, ours)))
    report = frazil.merge_table(spark, **tables, keys=["id"], cache_dir=tmp_path / "cache")
    assert report.rows_read == 2
    assert spark.table(tables["mirror"]).columns == ["id", "name"]
    again = frazil.merge_table(spark, **tables, keys=["id"], cache_dir=tmp_path / "cache")
    assert again.commits == ()


def test_a_foreign_changelog_keeps_its_sequence(
    spark: SparkSession, catalog: str, tmp_path: Path
) -> None:
    tables = make_changelog(spark, catalog, "(1, 'one', 'INSERT', '5')")
    cache = tmp_path / "cache"
    frazil.merge_table(spark, **tables, keys="id", cache_dir=cache)
    assert spark.table(tables["mirror"]).columns == ["id", "name", "cdc_sequence_number"]
    spark.sql(
        f"insert into {tables['changelog']} values (1, 'older', 'UPDATE', '4', current_timestamp())"
    )
    late = frazil.merge_table(spark, **tables, keys="id", cache_dir=cache)
    assert {action.value: keys for action, keys in late.counts.items() if keys} == {"late": 1}
    assert [row.name for row in spark.table(tables["mirror"]).collect()] == ["one"]


def test_a_thread_that_spark_does_not_know_may_merge(
    spark: SparkSession, catalog: str, tmp_path: Path
) -> None:
    tables = make_changelog(spark, catalog, "(1, 'one', 'INSERT', '1')")

    def merge() -> frazil.MergeReport:
        assert threading.current_thread() is not threading.main_thread()
        return frazil.merge_table(spark, **tables, keys=["id"], cache_dir=tmp_path / "cache")

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(merge).result().rows_read == 1


def test_missing_requirements_are_reported_before_anything_is_created(
    spark: SparkSession, catalog: str
) -> None:
    names = TablePair(changelog="nowhere.a.b", mirror="nowhere.a.c")
    with pytest.raises(ConfigError, match="no catalog 'nowhere'"):
        frazil.merge_table(spark, **names, keys=["id"])
    names = TablePair(changelog=f"{catalog}.a.b", mirror=f"{catalog}.a.c")
    with pytest.raises(TableNotFoundError):
        frazil.merge_table(spark, **names, keys=["id"])
    tables = make_changelog(spark, catalog, "(1, 'one', 'INSERT', '1')")
    with pytest.raises(ConfigError, match="there is no key column 'nr'"):
        frazil.merge_table(spark, **tables, keys=["nr"])
    assert not spark.catalog.tableExists(tables["mirror"])


@pytest.mark.parametrize("before", [None, "my notebook"])
def test_the_callers_jobs_are_called_as_before(
    spark: SparkSession, catalog: str, tmp_path: Path, before: str | None
) -> None:
    context, key = spark.sparkContext, "spark.job.description"
    tables = make_changelog(spark, catalog, "(1, 'one', 'INSERT', '1')")
    context.setLocalProperty(key, before)  # type: ignore[arg-type]
    try:
        frazil.merge_table(spark, **tables, keys=["id"], cache_dir=tmp_path / "cache")
        assert context.getLocalProperty(key) == before
    finally:
        context.setLocalProperty(key, None)  # type: ignore[arg-type]


@pytest.mark.fault("O10")
@pytest.mark.parametrize("name", [MarkerRole.MERGE.property_name, COLUMNS_PROPERTY])
def test_what_a_newer_frazil_wrote_is_refused_and_left_alone(
    spark: SparkSession, catalog: str, tmp_path: Path, name: str
) -> None:
    tables = make_changelog(spark, catalog, "(1, 'one', 'INSERT', '1')")
    merge = partial(frazil.merge_table, spark, **tables, keys=["id"], cache_dir=tmp_path / "cache")
    merge()
    mirror = Lake(spark, catalog).open(TableName(catalog, ("public",), "users"))
    before = mirror.load_state()
    ours = before.properties[name]

    def record(text: str) -> None:
        spark.sql(f"alter table {tables['mirror']} set tblproperties ('{name}' = '{text}')")

    newer = json.dumps({**json.loads(ours), "version": 99, "more": "unknown"})
    record(newer)
    spark.sql(
        f"insert into {tables['changelog']} values (2, 'two', 'INSERT', '2', current_timestamp())"
    )
    with pytest.raises(FrazilError) as refused:
        merge()
    assert refused.value.next_step == NEWER_STEP
    after = mirror.load_state()
    assert (after.head, after.properties[name]) == (before.head, newer)
    # Back with the release that can read it.
    record(ours)
    assert merge().rows_read == 1
