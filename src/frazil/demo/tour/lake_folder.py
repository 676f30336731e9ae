"""The folder that a demo leaves behind: a lake of plain files, and how to read it.

Nothing has to run to read it: the catalog is a SQLite file, and tables are files next to it.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.clients.spark.jars import ensure_jars
from frazil.clients.spark.session_plan import plan_session
from frazil.config import load_config
from frazil.demo.services.ports import LOOPBACK, free_ports, is_taken
from frazil.demo.services.workspace import remove
from frazil.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from frazil.config import Config, LoadedConfig

CATALOG = "lake"

# The default address of the status page.
_USUAL_PORT = 9093

# Marks a folder that we may empty, and is locked while a demo uses it.
_MARK = ".frazil-demo"
_DSN = "postgres.dsn"
# Useless once the source is gone.
_PASSING = (_DSN, "spool", "cache")

_DOCUMENT = """\
# What the demo ran with. Everything that is not here has its default.
pipeline: shop
catalog:
  kind: sql
  name: {catalog}
  uri: sqlite:///catalog.db
  warehouse: 'file://{folder}/lake'
source:
  kind: postgres
  dsn: ${{file:{dsn}}}
  tables: ["shop.*"]
  # The position of a quiet source is polled this often.
  heartbeat: 1s
ingest: {{interval: 2s}}
# Two tables at a time: while one is planned or committed, the other one computes.
merge: {{interval: 30s, concurrency: 2}}
shutdown_grace: 10s
telemetry:
  listen: {listen}
  log: {{level: warning}}
spark:
  master: local[2]
  conf: {{spark.sql.shuffle.partitions: '2', spark.driver.memory: 2g}}
"""


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
        """Write the configuration for this source, as a user would, and load it."""
        descriptor = os.open(self.dsn_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(dsn)
        port = free_ports(1)[0] if is_taken(_USUAL_PORT) else _USUAL_PORT
        text = _DOCUMENT.format(
            catalog=CATALOG, folder=_quoted(self.path), dsn=_DSN, listen=f"{LOOPBACK}:{port}"
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
