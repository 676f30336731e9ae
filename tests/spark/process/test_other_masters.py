"""Sessions that need a process of their own: another master, spark-submit, a bad setting.

All tests with a local cluster are here, because the tests of one file never run concurrently:
clusters keep their folders in the installed package, which the first test watches.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import pyspark
import pytest

from frazil.clients.spark.jars import ICEBERG_RUNTIME, SQLITE_DRIVER, ensure_jars
from frazil.clients.spark.java import find_java
from tests.support.lake.mirrored import files_catalog, write_document
from tests.support.process import cluster_merge
from tests.support.process.jvms import QUICK_JAVA
from tests.support.process.standalone_cluster import standalone_cluster

# A cluster is six JVMs, on a machine that may be busy.
PATIENCE_SECONDS = 540
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[3]

DOCUMENT = """
pipeline: elsewhere
catalog: {{kind: sql, uri: 'sqlite:///c.db', warehouse: ./wh}}
storage: {{s3: {{access_key_id: k, secret_access_key: canary-of-storage}}}}
tables: [{{mirror: a.b, changelog: a.c, key: [id]}}]
spark:
  master: '{master}'
  conf:
    spark.sql.shuffle.partitions: '2'
    spark.hadoop.example.password: canary-of-conf
"""

# Writes a table with Iceberg, reads it with Python tasks, and reports as one line of JSON.
PROGRAM = """
import json, os, sys
import psutil, pyarrow as pa
from pathlib import Path
from frazil.clients.spark.session import open_session
from frazil.config import load_config

def work(batches):
    import os, frazil
    for batch in batches:
        rows = batch.num_rows
        yield pa.RecordBatch.from_pydict({"pid": [os.getppid()], "rows": [rows]})

config = load_config(Path(sys.argv[1]), environ={}).config
with open_session(config) as spark:
    spark.sql("create namespace lake.a")
    spark.sql("create table lake.a.t (id bigint) using iceberg")
    spark.range(0, 1000, numPartitions=4).writeTo("lake.a.t").append()
    read = spark.table("lake.a.t").repartition(4).mapInArrow(work, "pid long, rows long").collect()
    alive = psutil.Process().children(recursive=True)
    family = [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]
    report = {
        "master": spark.sparkContext.master,
        "rows": sum(row.rows for row in read),
        "workers": len({row.pid for row in read}),
        "executors": sum("CoarseGrainedExecutorBackend" in " ".join(p.cmdline()) for p in family),
        "leaks": [w for p in family for w in p.cmdline() if "canary" in w],
    }
left = [p.pid for p in psutil.Process().children(recursive=True)]
print(json.dumps(report | {"left": left}))
"""


def document(folder: Path, master: str) -> Path:
    file = folder / "frazil.yaml"
    file.write_text(DOCUMENT.format(master=master))
    return file


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def worker_folders() -> set[Path]:
    """What workers of a local cluster leave inside the installed package unless it is removed."""
    return set((Path(pyspark.__file__).parent / "work").glob("*"))


@pytest.mark.deep
def test_a_local_cluster_leaves_no_folder_in_the_installed_package(tmp_path: Path) -> None:
    config = document(tmp_path, "local-cluster[2,1,1024]")
    before = worker_folders()
    finished = run(sys.executable, "-c", PROGRAM, config)
    assert finished.returncode == 0, finished.stderr
    report = json.loads(finished.stdout)
    assert report["rows"] == 1000
    assert report["executors"] == 2
    assert report["workers"] >= 2
    assert report["leaks"] == []
    assert report["left"] == []
    assert worker_folders() <= before


# Both, of an ingest, are in test_installed_wheel.
@pytest.mark.deep
@pytest.mark.fault("K9")
def test_a_merge_of_many_tasks_survives_the_loss_of_one_and_a_speculative_copy_of_another(
    tmp_path: Path,
) -> None:
    """On a cluster of separate executors."""
    program = Path(cluster_merge.__file__)
    environment = {"PYTHONPATH": str(ROOT), "FOLDER_OF_COPIES": str(tmp_path)}
    with standalone_cluster(tmp_path) as cluster:
        document = write_document(tmp_path, files_catalog(tmp_path), cluster.master)
        finished = run(sys.executable, program, document, tmp_path, **environment)
    # The process itself has compared every row and every entry of the index.
    assert finished.returncode == 0, finished.stderr
    report = json.loads(finished.stdout)
    assert (report["executors"], report["tasks"]) == (2, 4)
    assert report["leaks"] == []
    first, second, third, fourth = report["merges"]
    assert (first["counts"], first["files"]) == ({"insert": 400}, 8)
    assert second["counts"] == {"insert": 40, "update": 160, "delete": 40, "none": 10}
    assert (second["files"], second["repairs"]) == (4, [])
    assert third["repairs"] == ["missing"]
    assert (tmp_path / "copied").exists()
    assert (sum(fourth["counts"].values()), fourth["files"]) == (200, 4)
    # The files of the task that died and of the copy are there as well, and no snapshot names them.
    # On a busy machine other tasks are slow enough to be copied, too.
    assert report["written"] >= 8 + 4 + 1 + 1 + 4 + 1


def test_a_session_under_spark_submit_uses_its_jvm(tmp_path: Path) -> None:
    program = tmp_path / "job.py"
    program.write_text(PROGRAM)
    config = document(tmp_path, "local[1]")
    jars = ",".join(map(str, ensure_jars(ICEBERG_RUNTIME, SQLITE_DRIVER)))
    submit = Path(sysconfig.get_path("scripts")) / "spark-submit"
    environment = {
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_SUBMIT_OPTS": QUICK_JAVA,
    }
    command = (submit, "--master", "local[2]", "--jars", jars, program, config)
    finished = run(*command, **environment)
    assert finished.returncode == 0, finished.stderr[-2000:]
    report = json.loads(finished.stdout.splitlines()[-1])
    assert report["rows"] == 1000
    # The master is spark-submit's to choose.
    assert report["master"] == "local[2]"


@pytest.mark.deep
def test_an_ordinary_session_is_silent_and_leaves_nothing_behind(tmp_path: Path) -> None:
    config = document(tmp_path, "local[2]")
    finished = run(sys.executable, "-c", PROGRAM, config)
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""
    report = json.loads(finished.stdout)
    assert (report["rows"], report["leaks"], report["left"]) == (1000, [], [])


# As a locked-down container has it: a user whom nobody knows, without a home, who may write to one
# folder and open few files.
LOCKED_DOWN = """
import os, resource, sys
user = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))
if user != os.geteuid():
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
os.execv(sys.executable, [sys.executable, "-c", *sys.argv[2:]])
"""


def unprivileged_user() -> int:
    """A user whom nobody knows; ourselves where only we can reach the interpreter."""
    above = Path(sys.executable).resolve().parents
    is_for_all = all(each.stat().st_mode & stat.S_IXOTH for each in above)
    return 54321 if os.geteuid() == 0 and is_for_all else os.geteuid()


@pytest.mark.fault("O4")
def test_a_user_without_name_and_home_with_one_folder_and_few_files_is_enough() -> None:
    with tempfile.TemporaryDirectory(prefix="frazil-test-", dir="/tmp") as name:
        folder, user = Path(name), unprivileged_user()
        (folder / "cache").mkdir(0o755)
        (folder / "cache" / "jars").mkdir(0o755)
        for jar in ensure_jars(ICEBERG_RUNTIME, SQLITE_DRIVER):
            shutil.copy(jar, folder / "cache" / "jars")
        config = document(folder, "local[2]")
        for each in (folder, *folder.rglob("*")):
            each.chmod(0o755 if each.is_dir() else 0o644)
            os.chown(each, user, -1)
        environment = {name: value for name, value in os.environ.items() if name != "HOME"}
        finished = subprocess.run(
            [sys.executable, "-c", LOCKED_DOWN, str(user), PROGRAM, config],
            env={**environment, "FRAZIL_CACHE": str(folder / "cache"), "TMPDIR": str(folder)},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    assert (finished.returncode, finished.stderr) == (0, "")
    report = json.loads(finished.stdout)
    assert (report["rows"], report["leaks"], report["left"]) == (1000, [], [])


def test_a_master_spark_does_not_know_is_one_sentence(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom pathlib import Path\n"
        "from frazil.clients.spark.session import open_session\n"
        "from frazil.config import load_config\n"
        "from frazil.errors import FrazilError\n"
        "try:\n"
        "    with open_session(load_config(Path(sys.argv[1]), environ={}).config): pass\n"
        "except FrazilError as error:\n"
        "    print(error.code, error)\n"
    )
    finished = run(sys.executable, "-c", program, document(tmp_path, "nonsense"))
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.startswith("FRZ-OPS-02 Spark did not start with master nonsense: ")
    assert "Next: correct spark.master or spark.conf" in finished.stdout
    assert finished.stdout.count("\n") == 1


def test_a_session_without_iceberg_is_refused_with_the_package_to_add(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom pathlib import Path\n"
        "from pyspark.sql import SparkSession\n"
        "from frazil.clients.spark.session import attach_session\n"
        "from frazil.config import load_config\n"
        "from frazil.errors import FrazilError\n"
        "spark = SparkSession.builder.master('local[1]').getOrCreate()\n"
        "try:\n"
        "    attach_session(spark, load_config(Path(sys.argv[1]), environ={}).config)\n"
        "except FrazilError as error:\n"
        "    print(error.code, error)\n"
        "spark.stop()\n"
    )
    environment = {
        "JAVA_HOME": str(find_java().home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": QUICK_JAVA,
    }
    command = (sys.executable, "-c", program, document(tmp_path, "local[1]"))
    finished = run(*command, **environment)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == (
        "FRZ-OPS-02 this Spark session has no Iceberg on its class path. Next: start it with "
        "--packages org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0\n"
    )
