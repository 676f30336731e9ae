"""A small pipeline with foreign changelogs, for tests that run the command."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frazil.clients.iceberg.lake import Lake
from frazil.clients.spark.session import attach_session
from frazil.config import load_config
from frazil.merge.merger import Merger
from frazil.pipeline.tables.merge_settings import merge_settings
from frazil.verify.mirror_verifier import verify_mirror
from tests.support.process.jvms import QUICK_JAVA
from tests.support.process.session_commands import run_on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from frazil.config import Config
    from frazil.merge.report import MergeReport

FRAZIL = Path(sysconfig.get_path("scripts")) / "frazil"

DOCUMENT = """
pipeline: shop
catalog:
  name: {catalog}
  kind: sql
  uri: 'sqlite:///{folder}/catalog.db'
  warehouse: 'file://{folder}/warehouse'
tables:
  - {{mirror: public.users, changelog: public.users_changelog, key: [id]}}
  - {{mirror: public.orders, changelog: public.orders_changelog, key: [id]}}
merge: {{interval: 1s, max_rows: {max_rows}}}
retry: {{attempts: 2, base: 100ms, max: 200ms}}
telemetry: {{listen: '127.0.0.1:0', log: {{format: json}}}}
spark:
  master: 'local[1]'
  conf:
    spark.driver.memory: 1g
    spark.driver.extraJavaOptions: '{java}'
    spark.sql.shuffle.partitions: '1'
"""

# What a change is in these tests: id, name, operation.
Change = tuple[int, str | None, str]


@dataclass
class MergeShop:
    """Two changelogs in a catalog of files, read here and merged by processes of their own."""

    spark: SparkSession
    folder: Path
    document: Path
    config: Config
    lake: Lake
    _at: int = field(default=0)

    @classmethod
    def open(cls, spark: SparkSession, folder: Path, max_rows: int = 1_000_000) -> MergeShop:
        """A shop whose changelogs exist and are empty."""
        # A name of its own, because a session keeps every catalog it has met.
        catalog = f"c_{folder.name}"
        document = folder / "frazil.yaml"
        text = DOCUMENT.format(folder=folder, catalog=catalog, max_rows=max_rows, java=QUICK_JAVA)
        document.write_text(text)
        config = load_config(document, environ={}).config
        shop = cls(spark, folder, document, config, Lake(attach_session(spark, config), catalog))
        spark.sql(f"create namespace if not exists {catalog}.public")
        for table in ("users", "orders"):
            spark.sql(
                f"create table {catalog}.public.{table}_changelog (id bigint, name string, "
                "cdc_operation string, cdc_sequence_number string) using iceberg"
            )
        return shop

    @property
    def catalog(self) -> str:
        """The catalog's name in the session of the tests."""
        return self.config.catalog.name

    def change(self, table: str, *changes: Change) -> None:
        """One more snapshot of a changelog."""
        rows = []
        for id_, name, operation in changes:
            self._at += 1
            rows.append((id_, name, operation, f"{self._at:012d}"))
        columns = "id bigint, name string, cdc_operation string, cdc_sequence_number string"
        frame = self.spark.createDataFrame(rows, columns)
        frame.writeTo(f"{self.catalog}.public.{table}_changelog").append()

    def rows(self, table: str) -> dict[int, str | None]:
        """The mirror as it is now."""
        name = f"{self.catalog}.public.{table}"
        self.spark.sql(f"refresh table {name}")
        found = self.spark.sql(f"select id, name from {name}").collect()
        rows = {row.id: row.name for row in found}
        assert len(rows) == len(found), "a key is there twice"
        return rows

    def merge(self, table: str) -> MergeReport:
        """Bring a mirror up to date here, without a process of its own."""
        lake = Lake(self.spark, self.catalog)
        return Merger(self.spark, lake, merge_settings(self.config, f"public.{table}")).merge()

    def agrees(self, table: str) -> bool:
        """Whether a mirror is what its changelog says."""
        settings = merge_settings(self.config, f"public.{table}")
        found = verify_mirror(self.spark, self.lake, settings)
        return found.agrees and not found.unjudged

    def run(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """The command to its end."""
        return subprocess.run(
            [FRAZIL, *arguments, "-c", self.document],
            env={**os.environ, **environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )

    def run_here(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The command to its end, on the session of the tests."""
        return run_on(self.spark, *arguments, "-c", str(self.document))

    def run_json_here(self, *arguments: str, status: int = 0) -> Any:
        """Its result as programs read it."""
        finished = self.run_here(*arguments, "-o", "json")
        assert finished.returncode == status, finished.stderr
        return json.loads(finished.stdout)

    def start(self, *arguments: str, **environ: str) -> subprocess.Popen[str]:
        """The command, going on by itself."""
        return subprocess.Popen(
            [FRAZIL, *arguments, "-c", self.document],
            env={**os.environ, **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
