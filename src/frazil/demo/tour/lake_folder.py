"""The folder that a demo leaves behind: a lake of plain files, and how to read it.

Nothing has to run to read it: the catalog is a SQLite file, and tables are files next to it.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from frazil.clients.spark.jars import ensure_jars
from frazil.clients.spark.java import find_java
from frazil.clients.spark.session_plan import plan_session
from frazil.config import load_config
from frazil.demo.services.ports import LOOPBACK, free_ports, is_taken
from frazil.demo.services.workspace import remove
from frazil.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.config import Config, LoadedConfig
    from frazil.demo.services import EtcdServer, ObjectStore

CATALOG = "lake"

# The default address of the status page.
_USUAL_PORT = 9093

# Marks a folder that we may empty, and is locked while a demo uses it.
_MARK = ".frazil-demo"
_DSN, _ACCESS_KEY, _SECRET_KEY = "postgres.dsn", "s3.key", "s3.secret"
# Useless once the source is gone.
_PASSING = (_DSN, _ACCESS_KEY, _SECRET_KEY, "spool", "cache")

_DOCUMENT = """\
# What the demo ran with. Everything that is not here has its default.
pipeline: shop
catalog:
  kind: sql
  name: {catalog}
  uri: sqlite:///catalog.db
  warehouse: 'file://{folder}/lake'
{source}ingest: {{interval: 2s}}
# Two tables at a time: while one is planned or committed, the other one computes.
merge: {{interval: {merge}, concurrency: 2}}
shutdown_grace: 10s
telemetry:
  listen: {listen}
  log: {{level: {level}}}
spark:
  master: local[2]
  conf: {{spark.sql.shuffle.partitions: '2', spark.driver.memory: 2g}}
"""

_POSTGRES = f"""\
source:
  kind: postgres
  dsn: ${{file:{_DSN}}}
  tables: ["shop.*"]
  # The position of a quiet source is polled this often.
  heartbeat: 1s
"""

_TOPICS = """\
storage:
  s3:
    endpoint: {endpoint}
    region: {region}
    path_style: true
    access_key_id: ${{file:{access_key}}}
    secret_access_key: ${{file:{secret_key}}}
source:
  kind: kafscale
  bucket: {bucket}
  # No broker runs here that could describe its topics in etcd.
  discovery: s3
  etcd: {{endpoints: ["{etcd}"]}}
  topics:
    # Records: an append-only table with a row for each.
    - topic: orders
      table: shop.orders
      columns:
        - {{name: id, type: long, required: true}}
        - {{name: customer_id, type: long}}
        - {{name: status, type: string}}
        - {{name: total, type: long}}
        - {{name: placed_at, type: timestamp}}
    # Change events: a changelog, and a mirror with the newest row of every customer.
    - topic: cdc.customers
      changelog: shop.customers_changelog
      mirror: shop.customers
      envelope: debezium
      key: [id]
      columns:
        - {{name: id, type: long}}
        - {{name: name, type: string}}
        - {{name: city, type: string}}
        - {{name: points, type: long}}
"""

_QUESTION = """\
select status, count(*) as orders, sum(total) as revenue
from {orders}
group by status
order by status"""

# The catalog's file names no version; that of the table's newest metadata is in its own name.
_DUCKDB = """\
install iceberg; load iceberg; set unsafe_enable_version_guessing = true;
{question};"""

_PYICEBERG = """\
from glob import glob
from pyiceberg.table import StaticTable
newest = max(glob({metadata!r}))
orders = StaticTable.from_metadata(newest).scan().to_arrow()
revenue = orders.group_by("status").aggregate([("id", "count"), ("total", "sum")])
print(*revenue.sort_by("status").to_pylist(), sep="\\n")"""


@dataclass(slots=True)
class LakeFolder:
    """The folder of a demo; ``stays`` once its path was shown to the user."""

    path: Path
    stays: bool = False

    @property
    def document(self) -> Path:
        """The configuration."""
        return self.path / "frazil.yaml"

    @property
    def dsn_file(self) -> Path:
        """The connection string of the source, while there is one."""
        return self.path / _DSN

    @property
    def spark_settings(self) -> Path:
        """What Spark's own programs need to read the lake."""
        return self.path / "spark.conf"

    def write_document(self, dsn: str) -> LoadedConfig:
        """Write the configuration for this Postgres, as a user would, and load it."""
        self._write_secret(_DSN, dsn)
        return self._write(_POSTGRES, merge="2s", level="warning")

    def write_topics_document(self, store: ObjectStore, etcd: EtcdServer) -> LoadedConfig:
        """Write the configuration for topics in this store, as a user would, and load it."""
        self._write_secret(_ACCESS_KEY, store.access_key)
        self._write_secret(_SECRET_KEY, store.secret_key)
        return self._write(
            _TOPICS.format(
                endpoint=store.endpoint,
                region=store.region,
                access_key=_ACCESS_KEY,
                secret_key=_SECRET_KEY,
                bucket=store.bucket,
                etcd=etcd.endpoint,
            ),
            merge="5s",
            # A record that is no row is part of the tour.
            level="error",
        )

    def _write_secret(self, name: str, value: str) -> None:
        descriptor = os.open(self.path / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(value)

    def _write(self, source: str, *, merge: str, level: str) -> LoadedConfig:
        port = free_ports(1)[0] if is_taken(_USUAL_PORT) else _USUAL_PORT
        text = _DOCUMENT.format(
            catalog=CATALOG,
            folder=_quoted(self.path),
            source=source,
            merge=merge,
            level=level,
            listen=f"{LOOPBACK}:{port}",
        )
        self.document.write_text(text, encoding="utf-8")
        return load_config(self.document, environ={})

    def write_spark_settings(self, config: Config) -> None:
        """Let ``spark-sql`` and its sisters find the catalog and the jars."""
        plan = plan_session(config)
        settings = {
            **plan.conf,
            "spark.jars": ",".join(map(str, ensure_jars(*plan.jars))),
            # Else a metastore is made in whatever folder they are started from.
            "spark.sql.catalogImplementation": "in-memory",
            "spark.driver.bindAddress": LOOPBACK,
            "spark.driver.host": LOOPBACK,
        }
        text = "".join(f"{key} {value}\n" for key, value in settings.items())
        self.spark_settings.write_text(text, encoding="utf-8")


@contextmanager
def lake_folder(path: Path) -> Iterator[LakeFolder]:
    """An empty folder for one demo, removed at the end unless it ``stays``.

    What an earlier demo left there is removed. Raises ServiceError for a folder that holds
    anything else, or that another demo uses.
    """
    path = path.absolute()
    with _locked(path):
        for each in path.iterdir():
            if each.name != _MARK:
                remove(each)
        folder = LakeFolder(path)
        try:
            yield folder
        finally:
            if folder.stays:
                for name in _PASSING:
                    remove(path / name)
            else:
                remove(path)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    mark = path / _MARK
    if path.exists() and not mark.exists() and (not path.is_dir() or any(path.iterdir())):
        message = f"{path} is there already, and no demo has made it."
        raise ServiceError(message, next_step="choose another with --folder, or remove it")
    try:
        path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(mark, os.O_WRONLY | os.O_CREAT, 0o600)
    except OSError as error:
        message = f"{path} cannot be made: {error.strerror}."
        raise ServiceError(message, next_step="choose another with --folder") from error
    try:
        try:
            # The kernel lets go of it when we die, however that happens.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            message = f"another demo runs in {path}."
            raise ServiceError(message, next_step="choose another folder with --folder") from error
        yield
    finally:
        os.close(descriptor)


def _quoted(path: Path) -> str:
    """As the document reads it between quotes."""
    return str(path).replace("'", "''").replace("$", "$$")


@dataclass(frozen=True, slots=True)
class PastedQuery:
    """Something to paste, and where."""

    engine: str
    into: str
    text: str


def pasted_queries(folder: LakeFolder, orders: str) -> tuple[PastedQuery, ...]:
    """The same question for Spark, DuckDB and PyIceberg; ``orders`` is where that table lies."""
    path = orders.removeprefix("file://").removeprefix("file:")
    return (
        PastedQuery("Spark", "a shell", _spark(folder)),
        PastedQuery("DuckDB", "duckdb", _duckdb(path)),
        PastedQuery(
            "PyIceberg", "python", _PYICEBERG.format(metadata=f"{path}/metadata/*.metadata.json")
        ),
    )


def _spark(folder: LakeFolder) -> str:
    # A line of its own, so that people see where the query begins.
    question = "\n" + _QUESTION.format(orders="lake.shop.orders")
    arguments = [
        program("spark-sql"),
        "--properties-file",
        near(folder.spark_settings),
        "-e",
        question,
    ]
    return f"{_java_home()}{_python()}{shlex.join(arguments)}"


def _duckdb(path: str) -> str:
    quoted = path.replace("'", "''")
    return _DUCKDB.format(question=_QUESTION.format(orders=f"iceberg_scan('{quoted}')"))


def _java_home() -> str:
    """Names our Java where Spark's programs would find another one, or none."""
    java = find_java()
    if "JAVA_HOME" in os.environ:
        found = Path(os.environ["JAVA_HOME"])
    else:
        on_path = shutil.which("java")
        found = Path(on_path).resolve().parents[1] if on_path else Path()
    if found.resolve() == java.home.resolve():
        return ""
    return f"JAVA_HOME={shlex.quote(str(java.home))} "


def _python() -> str:
    """Names our Python where Spark's programs would use another one."""
    found, ours = shutil.which("python3"), Path(sys.executable)
    if found is not None and Path(found).parent == ours.parent:
        return ""
    return f"PYSPARK_PYTHON={shlex.quote(near(ours))} "


def program(name: str) -> str:
    """A program of this installation, as one would type it here."""
    ours = Path(sys.executable).with_name(name)
    return near(ours) if ours.exists() else name


def near(path: Path) -> str:
    """A path as one would type it here."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
