from __future__ import annotations

import io
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

import frazil.clients.spark.session
from frazil.clients.spark.session import attach_session, open_session
from frazil.config import load_config
from frazil.errors import RuntimeMissingError
from frazil.model.policy import LogFormat
from frazil.sources.registry import TASK_MODULES
from frazil.telemetry.logs import LogSettings, configure_logs
from frazil.telemetry.redaction import Redactor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

    from frazil.config import Config
    from frazil.demo.services import ObjectStore, RestCatalog

pytestmark = pytest.mark.spark


def living_children() -> list[psutil.Process]:
    """Every process started from here; what is dead but not buried has no arguments."""
    family = psutil.Process().children(recursive=True)
    return [process for process in family if process.status() != psutil.STATUS_ZOMBIE]


def test_a_table_written_by_spark_over_rest_and_s3_is_read_by_pyiceberg(
    spark: SparkSession, s3_catalog: RestCatalog, object_store: ObjectStore
) -> None:
    spark.sql("create namespace if not exists lake.smoke")
    spark.sql(
        "create table lake.smoke.events (id bigint, name string, price decimal(20,6)) "
        "using iceberg tblproperties ('format-version' = '3')"
    )
    spark.sql("insert into lake.smoke.events values (1, 'å', 1.000001), (2, null, -0.5)")
    spark.sql("update lake.smoke.events set price = 7 where id = 2")
    catalog = load_catalog(
        "reader", type="rest", uri=s3_catalog.uri, **object_store.io_properties()
    )
    try:
        table = catalog.load_table("smoke.events")
        assert table.format_version == 3
        # The update left a deletion vector behind, which the reader must apply.
        rows = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: int(row["id"]))
    finally:
        catalog.close()
    assert [(row["id"], row["name"], str(row["price"])) for row in rows] == [
        (1, "å", "1.000001"),
        (2, None, "7.000000"),
    ]


def test_python_tasks_run_in_worker_processes_with_our_interpreter(spark: SparkSession) -> None:
    def who_works(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict(
                {"pid": [os.getpid()], "python": [sys.executable], "rows": [batch.num_rows]}
            )

    frame = spark.range(0, 100, numPartitions=2)
    workers = frame.mapInArrow(who_works, "pid long, python string, rows long").collect()
    assert sum(worker.rows for worker in workers) == 100
    assert {worker.python for worker in workers} == {sys.executable}
    assert os.getpid() not in {worker.pid for worker in workers}


def test_workers_start_with_tasks_loaded_and_without_archives_to_search(
    spark: SparkSession,
) -> None:
    loaded = {"frazil.merge.writing.task", *TASK_MODULES}

    def look(_: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        archives = [path for path in sys.path_importer_cache if path.endswith((".zip", ".jar"))]
        ours = [path for path in archives if "pyspark" in path]
        yield pa.RecordBatch.from_pydict(
            {"loaded": [loaded <= sys.modules.keys()], "archives": [len(ours)]},
            schema=pa.schema({"loaded": pa.bool_(), "archives": pa.int32()}),
        )

    frame = spark.range(0, 1, numPartitions=1)
    (worker,) = frame.mapInArrow(look, "loaded boolean, archives int").collect()
    assert (worker.loaded, worker.archives) == (True, 0)


def test_nothing_secret_is_on_a_command_line(
    spark: SparkSession, object_store: ObjectStore
) -> None:
    key = "spark.sql.catalog.lake.s3.secret-access-key"
    assert spark.conf.get(key) == object_store.secret_key
    arguments = [word for process in living_children() for word in process.cmdline()]
    assert any("SparkSubmit" in word for word in arguments)
    assert not [word for word in arguments if object_store.secret_key in word]


@pytest.mark.fault("N50")
def test_what_spark_puts_down_on_disk_is_for_this_user_alone(spark: SparkSession) -> None:
    system = spark._jvm.java.lang.System  # type: ignore[union-attr]
    folder = Path(str(system.getProperty("java.io.tmpdir")))
    assert folder.stat().st_mode & 0o077 == 0
    assert folder.stat().st_uid == os.geteuid()
    assert list(folder.glob("blockmgr-*"))


def test_the_session_keeps_to_loopback(spark: SparkSession) -> None:
    assert spark.sparkContext.uiWebUrl is None
    jvm = next(
        process
        for process in living_children()
        if any("SparkSubmit" in word for word in process.cmdline())
    )
    listening = [link for link in jvm.net_connections() if link.status == psutil.CONN_LISTEN]
    assert listening
    assert {link.laddr.ip.removeprefix("::ffff:") for link in listening} == {"127.0.0.1"}


def test_what_spark_warns_of_comes_through_our_logger(
    spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    written = io.StringIO()
    settings = LogSettings(format=LogFormat.JSON)
    undo = configure_logs(settings, Redactor(["canary-in-the-jvm"]), stream=written)
    try:
        loggers = spark.sparkContext._jvm.org.apache.logging.log4j.LogManager  # type: ignore[union-attr]
        loggers.getLogger("com.example.Noise").info("below the threshold: 4712")
        loggers.getLogger("com.example.Noise").warn("a marker: 4711 canary-in-the-jvm")
        deadline = time.monotonic() + 60
        while "4711" not in written.getvalue() and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        undo()
    event = next(json.loads(line) for line in written.getvalue().splitlines() if "4711" in line)
    assert event["event"] == "spark message"
    assert event["level"] == "warning"
    assert event["source"] == "com.example.Noise"
    assert event["message"] == "a marker: 4711 ***"
    assert "4712" not in written.getvalue()
    assert capfd.readouterr().err == ""


def test_a_session_of_the_callers_learns_the_catalog_and_goes_on_running(
    spark: SparkSession, tmp_path: Path, s3_catalog: RestCatalog
) -> None:
    document = tmp_path / "second.yaml"
    document.write_text(
        "pipeline: second\n"
        f"catalog: {{name: second, kind: rest, uri: '{s3_catalog.uri}', warehouse: wh}}\n"
        "tables: [{mirror: a.b, changelog: a.c, key: [id]}]\n"
    )
    config = load_config(document, environ={}).config
    spark.sql("create namespace if not exists lake.seen_by_both")
    seen = attach_session(spark, config).sql("show namespaces in second").collect()
    assert "seen_by_both" in {row.namespace for row in seen}
    assert spark.range(3).count() == 3


def test_attaching_twice_leaves_the_callers_settings_alone(
    spark: SparkSession, lake_config: Config
) -> None:
    before = spark.conf.get("spark.sql.catalog.lake.uri")
    assert attach_session(spark, lake_config) is spark
    assert spark.conf.get("spark.sql.catalog.lake.uri") == before
    assert spark.sql("show namespaces in lake").count() >= 0


def test_a_second_session_in_one_process_is_refused(
    spark: SparkSession, lake_config: Config
) -> None:
    assert spark.version.startswith("4.1")
    with (
        pytest.raises(RuntimeMissingError, match="already running in this process"),
        open_session(lake_config),
    ):
        pass


def test_the_log_settings_are_shipped_with_the_package() -> None:
    settings = Path(frazil.clients.spark.session.__file__).with_name("log4j2.xml")
    assert "JsonTemplateLayout" in settings.read_text()
    assert json.loads(settings.read_text().split("eventTemplate='")[1].split("'")[0])
