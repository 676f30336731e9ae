"""Spark's classes as Java has loaded them once, for all the JVMs of the tests to map.

``python -m tests.support.process.class_archive`` makes it, in half a minute: most of the time in
which a short-lived JVM starts goes into reading and verifying the same thirty thousand classes.
Java itself checks whether an archive fits its class path; without one, everything takes longer.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path
from unittest.mock import patch

import pyspark

from frazil.clients.iceberg.lake import Lake
from frazil.clients.spark import session as spark
from frazil.clients.spark.java import find_java
from frazil.config import load_config
from frazil.errors import FrazilError
from frazil.merge.merger import Merger
from frazil.pipeline.tables.merge_settings import merge_settings

ROOT = Path(__file__).resolve().parents[3]
# Longer than any dump takes: a JVM that is ended in the middle of it leaves nothing.
_DUMP_SECONDS = 300
_COLUMNS = "id bigint, name string, cdc_operation string, cdc_sequence_number string"
_DOCUMENT = """
pipeline: archive
catalog:
  kind: sql
  uri: 'sqlite:///{folder}/catalog.db'
  warehouse: 'file://{folder}/warehouse'
tables:
  - {{mirror: public.users, changelog: public.users_changelog, key: [id]}}
spark:
  master: 'local[1]'
  conf:
    spark.driver.memory: 1g
    spark.driver.extraJavaOptions: '-XX:TieredStopAtLevel=1 -XX:ArchiveClassesAtExit={file}'
"""


def archive_file() -> Path:
    """Where the archive for this Java and this Spark is, if there is one."""
    jars = sorted((Path(pyspark.__file__).parent / "jars").iterdir())
    facts = [f"{each} {each.stat().st_mtime_ns}" for each in jars]
    digest = hashlib.sha256("\n".join([str(find_java()), *facts]).encode()).hexdigest()
    return ROOT / ".tools" / f"classes-{digest[:16]}.jsa"


def archive_option() -> str:
    """The option for a JVM, after a blank; empty where it would be of no use."""
    try:
        file = archive_file()
    except (FrazilError, OSError):
        return ""
    # Java's options are separated by blanks.
    return f" -XX:SharedArchiveFile={file}" if file.exists() and " " not in str(file) else ""


def make_archive(file: Path) -> None:
    """Do what tests do most, in a JVM that writes down its classes when it ends."""
    making = file.with_suffix(".making")
    with tempfile.TemporaryDirectory() as folder:
        document = Path(folder) / "frazil.yaml"
        document.write_text(_DOCUMENT.format(folder=folder, file=making))
        config = load_config(document, environ={}).config
        with patch.object(spark, "_EXIT_SECONDS", _DUMP_SECONDS), spark.open_session(config) as own:
            catalog = config.catalog.name
            changelog = f"{catalog}.public.users_changelog"
            own.sql(f"create namespace {catalog}.public")
            own.sql(f"create table {changelog} ({_COLUMNS}) using iceberg")
            rows = own.createDataFrame([(1, "one", "INSERT", "1")], _COLUMNS)
            rows.writeTo(changelog).append()
            Merger(own, Lake(own, catalog), merge_settings(config, "public.users")).merge()
    if making.exists():
        making.rename(file)


def main() -> None:
    """Make it, unless it is there."""
    file = archive_file()
    if not file.exists():
        file.parent.mkdir(exist_ok=True)
        make_archive(file)
    outcome = "is there" if file.exists() else "was not written: tests take longer"
    sys.stdout.write(f"tests: the archive of Spark's classes {outcome}\n")


if __name__ == "__main__":
    main()
