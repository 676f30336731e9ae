"""The wheel outside the repository: in an empty folder without a network, and on a cluster."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import boto3
import pytest
from pyiceberg.catalog import load_catalog

from frazil.clients.cache import cache_directory
from frazil.clients.spark.provisioning import provision
from frazil.version import __version__
from tests.support.postgres.access import Database, database_on
from tests.support.process.installed import install_wheel
from tests.support.process.jvms import QUICK_JAVA
from tests.support.process.pipeline_process import PipelineProcess, free_port
from tests.support.process.standalone_cluster import standalone_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from frazil.demo.services import ObjectStore, Postgres, RestCatalog
    from tests.support.process.standalone_cluster import ClusterWorker, StandaloneCluster

# Sessions from modules that no process has compiled yet.
pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.timeout(1800)]

# Answers nothing: whoever asks a registry fails.
NOBODY = "http://127.0.0.1:9"
NO_REPOSITORY = "<ivysettings><resolvers/></ivysettings>"
# Of our environment, what every machine has.
KEPT = ("HOME", "JAVA_HOME", "LANG", "PATH", "TMPDIR")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the installed programs."""
    return install_wheel(tmp_path_factory.mktemp("installed"))


@pytest.fixture
def database(postgres: Postgres) -> Iterator[Database]:
    with database_on(postgres, f"wheel_{uuid4().hex[:8]}") as made:
        yield made


def machine() -> dict[str, str]:
    """An environment in which nothing leads to this checkout."""
    return {name: os.environ[name] for name in KEPT if name in os.environ}


@dataclass(frozen=True)
class Elsewhere:
    """A folder on a machine that reaches no registry."""

    folder: Path
    process: PipelineProcess

    def frazil(self, *arguments: str) -> str:
        """What it printed; it must succeed."""
        finished = self.process.command(*arguments)
        assert finished.returncode == 0, f"{arguments}: {finished.stdout}{finished.stderr}"
        return finished.stdout


@pytest.fixture
def elsewhere(tmp_path: Path, database: Database, programs: Path) -> Elsewhere:
    folder = tmp_path / "empty"
    folder.mkdir()
    settings = tmp_path / "no-repository.xml"
    settings.write_text(NO_REPOSITORY)
    environment = {
        **machine(),
        "DATABASE_URL": database.dsn.value,
        "FRAZIL_CACHE": str(tmp_path / "cache"),
        "FRAZIL_IVY_SETTINGS": str(settings),
        "FRAZIL__SPARK__CONF": f"{{spark.driver.extraJavaOptions: {QUICK_JAVA}}}",
        "FRAZIL__TELEMETRY__LISTEN": "127.0.0.1:0",
        "PIP_INDEX_URL": NOBODY,
        "UV_INDEX_URL": NOBODY,
    }
    program = (str(programs / "frazil"),)
    return Elsewhere(folder, PipelineProcess(folder, 0, program=program, environment=environment))


def prepared_folder(folder: Path) -> Path:
    """What ``frazil setup --prepare`` leaves, from the jars this machine has; Java is its own."""
    (folder / "jars").mkdir(parents=True)
    for jar in provision(lambda _line: None).jars:
        # Not copied: they have more than a hundred megabytes.
        (folder / "jars" / jar.name).symlink_to(jar)
    return folder


def test_the_wheel_mirrors_a_database_in_an_empty_folder_without_a_network(
    elsewhere: Elsewhere, database: Database, tmp_path: Path
) -> None:
    database.run("create table item (id int primary key, name text)")
    database.run("insert into item select i, 'item ' || i from generate_series(1, 100) i")
    versions = json.loads(elsewhere.frazil("version", "-o", "json"))
    assert versions["frazil"] == __version__

    printed = json.loads(
        elsewhere.frazil(
            "setup", "--offline", str(prepared_folder(tmp_path / "prepared")), "-o", "json"
        )
    )
    assert printed["jars"]["folder"] == str(tmp_path / "cache" / "jars")
    elsewhere.frazil("init", "--pipeline", "elsewhere")
    assert "nothing must be fixed" in elsewhere.frazil("check")
    elsewhere.frazil("run", "--once")
    assert "public.item" in elsewhere.frazil("verify")
    assert (elsewhere.folder / "lake" / "public").is_dir()


# As docs/how-to/cluster.md has it. Loopback only: a driver listens where its executors reach it.
CLUSTER_DOCUMENT = """
pipeline: {name}
catalog: {{kind: rest, uri: '{catalog}', warehouse: '{warehouse}'}}
storage:
  s3: {{endpoint: '{endpoint}', path_style: true, access_key_id: '{key}',
    secret_access_key: '${{S3_SECRET}}'}}
source:
  kind: postgres
  dsn: '${{DATABASE_URL}}'
  spool: {{dir: 's3://{bucket}/spool-of-{name}'}}
mirror: {{namespace: '{name}'}}
changelog: {{namespace: '{name}'}}
ingest: {{interval: 200ms}}
merge: {{interval: 1s}}
telemetry: {{listen: '127.0.0.1:{port}', log: {{format: json}}}}
spark:
  master: {master}
  conf:
    spark.pyspark.python: {python}
    spark.python.daemon.module: frazil.clients.spark.worker_daemon
    spark.driver.host: 127.0.0.1
    spark.driver.memory: 512m
    spark.driver.extraJavaOptions: '{java}'
    spark.executor.memory: 512m
    spark.executor.extraJavaOptions: '{java}'
    spark.sql.shuffle.partitions: '2'
    # A task that takes longer is done a second time, by the other executor.
    spark.speculation: 'true'
    spark.speculation.interval: 100ms
    spark.speculation.task.duration.threshold: 3s
"""


@pytest.fixture
def driver(tmp_path: Path) -> Path:
    """The folder of the driver, which no executor sees."""
    folder = tmp_path / "driver"
    folder.mkdir()
    return folder


@pytest.fixture
def cluster(tmp_path: Path, driver: Path) -> Iterator[StandaloneCluster]:
    """Machines that share nothing but what the network has."""
    hidden = (driver, cache_directory() / "jars")
    with standalone_cluster(tmp_path / "machines", hidden=hidden) as started:
        yield started


@pytest.fixture
def stores(object_store: ObjectStore, s3_catalog: RestCatalog) -> dict[str, str]:
    """What a document says of the catalog and the store."""
    return {
        "catalog": s3_catalog.uri,
        "warehouse": s3_catalog.warehouse,
        "endpoint": object_store.endpoint,
        "key": object_store.access_key,
        "secret": object_store.secret_key,
        "bucket": object_store.bucket,
    }


@pytest.fixture
def pipeline(
    cluster: StandaloneCluster,
    driver: Path,
    programs: Path,
    database: Database,
    stores: dict[str, str],
) -> Iterator[PipelineProcess]:
    """Not started yet."""
    port = free_port()
    words = {"name": database.name, "port": port, "master": cluster.master, "java": QUICK_JAVA}
    document = CLUSTER_DOCUMENT.format(**words, **stores, python=programs / "python")
    (driver / "frazil.yaml").write_text(document)
    secrets = {"DATABASE_URL": database.dsn.value, "S3_SECRET": stores["secret"]}
    program = (str(programs / "frazil"),)
    environment = {**machine(), **secrets, "SPARK_LOCAL_IP": "127.0.0.1"}
    made = PipelineProcess(driver, port, program=program, environment=environment)
    try:
        yield made
    finally:
        made.end()


def inserted(pipeline: PipelineProcess) -> dict[str, int]:
    """How many rows merges have added to each mirror."""
    status: Any = pipeline.status()
    tables = [] if status is None else status["tables"]
    return {each["table"].rpartition(".")[2]: each["merged"].get("insert", 0) for each in tables}


def changes_in(stores: dict[str, str], table: str) -> tuple[int, int]:
    """The rows of a changelog, as PyIceberg reads them, and how many files it has."""
    catalog = load_catalog(
        "lake",
        type="rest",
        uri=stores["catalog"],
        **{
            "s3.endpoint": stores["endpoint"],
            "s3.access-key-id": stores["key"],
            "s3.secret-access-key": stores["secret"],
            "s3.region": "us-east-1",
        },
    )
    tasks = list(catalog.load_table(table).scan().plan_files())
    return sum(each.file.record_count for each in tasks), len(tasks)


def written_files(stores: dict[str, str], table: str) -> int:
    """Data files of a table in the store, those of no snapshot among them."""
    store = boto3.client(
        "s3",
        endpoint_url=stores["endpoint"],
        aws_access_key_id=stores["key"],
        aws_secret_access_key=stores["secret"],
        region_name="us-east-1",
    )
    place = f"{stores['warehouse'].removeprefix('s3://' + stores['bucket'] + '/')}/{table}/data/"
    listed = store.list_objects_v2(Bucket=stores["bucket"], Prefix=place)
    return sum(each["Key"].endswith(".parquet") for each in listed["Contents"])


def close_gates(workers: tuple[ClusterWorker, ...]) -> None:
    """Tasks wait from now on, when they have written their files."""
    for each in workers:
        each.forget_tasks()
        each.gate.touch()


def open_gates(workers: tuple[ClusterWorker, ...]) -> None:
    for each in workers:
        each.gate.unlink()


@pytest.mark.fault("K9")
def test_a_cluster_that_shares_only_stores_loses_an_executor_and_no_change(
    pipeline: PipelineProcess,
    cluster: StandaloneCluster,
    database: Database,
    stores: dict[str, str],
) -> None:
    workers = cluster.workers
    database.run(
        "create table item (id int primary key, name text, n int)",
        "insert into item select i, 'item ' || i, 0 from generate_series(1, 2000) i",
        "create table tag (name text primary key)",
        "insert into tag select 'tag ' || i from generate_series(1, 100) i",
    )
    pipeline.start()
    pipeline.wait_until(lambda: inserted(pipeline) == {"item": 2000, "tag": 100}, "copied")

    # One task is done twice, by speculation: both have written when they go on.
    close_gates(workers)
    database.run("update item set n = n + 1 where id % 2 = 0")
    pipeline.wait_until(lambda: all(each.holds_a_task for each in workers), "in two executors")
    open_gates(workers)
    pipeline.wait_until(
        lambda: changes_in(stores, f"{database.name}.item_changelog")[0] == 3000, "in"
    )

    close_gates(workers)
    database.run(
        "delete from item where id % 10 = 0",
        "update tag set name = 'new ' || name where name like '%7'",
    )
    pipeline.wait_until(lambda: any(each.holds_a_task for each in workers), "in a batch")
    busy = next(each for each in workers if each.holds_a_task)
    busy.executor().send_signal(signal.SIGKILL)
    open_gates(workers)
    database.run("insert into item select i, 'late', 1 from generate_series(3001, 3100) i")

    # The last change of each table is one of those that add a row.
    pipeline.wait_until(lambda: inserted(pipeline) == {"item": 2100, "tag": 110}, "merged")
    pipeline.send(signal.SIGTERM)
    assert pipeline.wait() == 0, pipeline.output_tail()
    # Beside the cluster, as the page about clusters has it.
    verified = pipeline.command("verify", FRAZIL__SPARK__MASTER="local[2]")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert f"{database.name}.item" in verified.stdout
    # Every change once, and files of the copy and of the lost task that no snapshot names.
    rows, files = changes_in(stores, f"{database.name}.item_changelog")
    assert rows == 2000 + 1000 + 200 + 100
    assert written_files(stores, f"{database.name}/item_changelog") > files
