"""A Postgres server that a benchmark captures, and pipelines from it into the lake."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

import psycopg

from benchmarks.support.bench_lake import catalog_document
from benchmarks.support.process_tree import cpu_seconds_of
from frazil.config import load_config
from frazil.demo.services import embedded_postgres
from frazil.demo.services.postgres import PostgresVersion, find_programs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.support.bench_lake import BenchLake
    from frazil.config import Config
    from frazil.demo.services import Postgres

_DOCUMENT = """
pipeline: {pipeline}
{catalog}
source:
  kind: postgres
  dsn: '{dsn}'
  tables: {tables}
  spool: {{dir: '{folder}/spool'}}
  copy: {{connections: {connections}}}
changelog: {{namespace: {pipeline}, table: '{{table}}_changelog'}}
mirror: {{namespace: {pipeline}, table: '{{table}}', index: {{cache_dir: '{folder}/cache'}}}}
ingest: {{interval: {ingest}}}
merge: {{interval: 5s}}
"""
_SETTINGS = {
    # What is read was written a moment ago, and stays in memory as it does on a server of its own.
    "shared_buffers": "1GB",
    # No checkpoint of an earlier turn may fall into a later one.
    "max_wal_size": "16GB",
    "checkpoint_timeout": "1h",
}


@dataclass(frozen=True, slots=True)
class SourceServer:
    """The server, and the lake that its tables go to."""

    lake: BenchLake
    server: Postgres

    @property
    def connections(self) -> int:
        """How many read at a time: as many as the session has tasks."""
        return self.lake.session.sparkContext.defaultParallelism

    @property
    def cpu_seconds(self) -> float:
        """What the server has used so far."""
        pid = self.server.service.pid
        if pid is None:
            raise AssertionError("the server has ended")
        return cpu_seconds_of(pid)

    def run(self, *statements: str) -> None:
        """Each is a transaction of its own."""
        with self.connect() as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def query_row(self, query: str) -> tuple[object, ...]:
        """The only row of the answer."""
        with self.connect() as connection:
            row = connection.execute(query.encode()).fetchone()
        if row is None:
            raise AssertionError("no answer")
        return tuple(row)

    def connect(self) -> psycopg.Connection:
        """A session in which every statement is a transaction of its own."""
        return psycopg.connect(self.server.dsn, autocommit=True)

    def config(self, pipeline: str, tables: Sequence[str], *, ingest: str = "2s") -> Config:
        """A pipeline from these tables, in namespaces of its own."""
        folder = self.lake.folder
        document = folder / f"{pipeline}.yaml"
        document.write_text(
            _DOCUMENT.format(
                pipeline=pipeline,
                catalog=catalog_document(folder),
                dsn=self.server.dsn,
                tables=list(tables),
                folder=folder,
                connections=self.connections,
                ingest=ingest,
            )
        )
        return load_config(document, environ={}).config

    def run_programs(self, *commands: Sequence[str]) -> None:
        """Run programs of the server's package, all at once; what they print goes nowhere."""
        folder = find_programs(PostgresVersion(self.server.version), None)
        server = self.server
        running = [
            subprocess.Popen(  # noqa: S603 - programs of our own package
                [
                    str(folder / program),
                    *("-h", server.host, "-p", str(server.port)),
                    *("-U", server.user, "-d", server.database, *arguments),
                ],
                env={**os.environ, "PGPASSWORD": server.password},
                stdout=subprocess.DEVNULL,
            )
            for program, *arguments in commands
        ]
        if any(status != 0 for status in [each.wait() for each in running]):
            message = f"{commands[0][0]} failed"
            raise AssertionError(message)

    def end_pipeline(self, pipeline: str) -> None:
        """Take away what a pipeline has left at the server."""
        self.run(
            f"select pg_drop_replication_slot('{pipeline}_frazil')",
            f"drop publication {pipeline}_frazil",
        )


@contextmanager
def open_source_server(lake: BenchLake) -> Iterator[SourceServer]:
    """An empty server of the newest version."""
    with embedded_postgres(settings=_SETTINGS) as server:
        yield SourceServer(lake, server)


def require_equal(what: str, found: Sequence[object], wanted: Sequence[object]) -> None:
    """Two engines found the same numbers, to the last digit."""
    if [Decimal(str(each)) for each in found] != [Decimal(str(each)) for each in wanted]:
        message = f"{what}: expected {list(wanted)}, found {list(found)}"
        raise AssertionError(message)
