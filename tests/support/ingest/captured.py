"""A database that is captured: statements go in, changelogs and mirrors come out.

What the mirrors must hold is read from the database itself by psycopg, and what they do hold is
read by PyIceberg: neither has anything to do with how the rows came there.
"""

from __future__ import annotations

import json
import math
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID, uuid4

import numpy as np
import psycopg
from psycopg.adapt import Loader
from psycopg.types.string import TextLoader

from frazil.clients.iceberg.lake import Lake
from frazil.clients.spark.session import attach_session
from frazil.config import load_config
from frazil.errors import FrazilError
from frazil.ledger.table import Ledger
from frazil.merge.merger import Merger
from frazil.model.postgres.lsn import parse_lsn
from frazil.model.postgres.names import quote_identifier, quote_literal
from frazil.pipeline.capture import build_capture, build_ingest_loop
from frazil.pipeline.loops.loop import StopRequest
from frazil.pipeline.resync import load_resync
from frazil.pipeline.tables.captured_mirrors import ledger_name
from frazil.pipeline.tables.captured_names import CapturedNames, captured_names
from frazil.pipeline.tables.merge_settings import load_merges
from tests.support.ingest.sequences import parse_sequence
from tests.support.lake.other_readers import rows_by_pyiceberg
from tests.support.postgres.access import Database, database_on

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from psycopg.abc import Buffer
    from pyspark.sql import SparkSession

    from frazil.config import Config
    from frazil.demo.services import Postgres
    from frazil.ingest.report import BatchReport
    from frazil.ledger.table_state import State
    from frazil.merge.report import MergeReport
    from frazil.model.table_name import TableName
    from frazil.pipeline.capture import Capture
    from frazil.pipeline.loops.loop import Ending
    from frazil.pipeline.next_step import NextStep

Row = dict[str, Any]

# Types that mirrors hold as text; psycopg would make something else of them.
_AS_TEXT = ("json", "jsonb", "interval", "time", "timetz", "inet", "cidr", "money")


class _SingleLoader(Loader):
    """A number of single precision as the number of double precision that it is."""

    def load(self, data: Buffer) -> float:
        """The shortest text of a single is not the text of that double."""
        return float(np.float32(bytes(data).decode()))


@dataclass(frozen=True)
class Change:
    """A row of a changelog; ``row`` are the source's columns, ``unchanged`` their names."""

    operation: str
    row: Row
    unchanged: tuple[str, ...]
    previous: Row | None
    lsn: str
    sequence: str
    at: datetime | None

    @property
    def ordinal(self) -> int:
        """Its position among the rows of this table in its transaction."""
        return parse_sequence(self.sequence).ordinal

    @property
    def short(self) -> tuple[Any, ...]:
        """The operation and the values; what was not sent is ``...``."""
        return (
            self.operation,
            *(... if name in self.unchanged else each for name, each in self.row.items()),
        )


class MirroredNames(NamedTuple):
    """The two tables of the lake that a table here has."""

    changelog: TableName
    mirror: TableName


@dataclass
class CapturedDatabase:
    """One database, one pipeline over all its tables in ``public``, and a catalog of its own.

    Tables are named ``schema.table``, or without a schema for those in ``public``.
    """

    spark: SparkSession
    database: Database
    folder: Path
    document: dict[str, Any]
    config: Config
    lake: Lake
    # What ingests said, in order; of the last one only.
    reports: list[BatchReport] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    ending: Ending | None = None
    # Called whenever a batch was recorded, in the middle of an ingest.
    on_report: Callable[[BatchReport], None] = lambda _report: None

    # --- the source ---

    def run(self, *statements: str) -> None:
        """Each is a transaction of its own; several in one string are one together."""
        self.database.run(*statements)

    def in_transaction(self, *statements: str) -> None:
        """All of them in one transaction."""
        self.database.run(f"begin; {'; '.join(statements)}; commit")

    def ask(self, query: str) -> object:
        """The only value of the answer."""
        return self.database.ask(query)

    def source_rows(self, table: str) -> list[Row]:
        """The rows of a table and its partitions, without those of tables that inherit from it."""
        schema, _, name = _qualified(table).partition(".")
        quoted = f"{quote_identifier(schema)}.{quote_identifier(name)}"
        kind = self.ask(
            f"select relkind from pg_class where oid = {quote_literal(quoted)}::regclass"
        )
        return self.query(f"select * from {'' if kind == 'p' else 'only'} {quoted}")

    def query(self, query: str) -> list[Row]:
        """What the database answers, in plain values."""
        with psycopg.connect(self.database.dsn.value, autocommit=True) as connection:
            for each in _AS_TEXT:
                if connection.adapters.types.get(each) is not None:
                    connection.adapters.register_loader(each, TextLoader)
            connection.adapters.register_loader("float4", _SingleLoader)
            connection.execute("set timezone to 'UTC'")
            cursor = connection.execute(query.encode())
            names = [each.name for each in cursor.description or ()]
            return [dict(zip(names, map(plain, row), strict=True)) for row in cursor]

    # --- the pipeline ---

    def ingest(self, *, changes_meanwhile: Callable[[], None] | None = None) -> list[BatchReport]:
        """All that is there now, as ``frazil ingest --once`` does it in a new process.

        ``changes_meanwhile`` is called once, after the first batch was recorded.
        """
        capture = self.capture()
        pending = [] if changes_meanwhile is None else [changes_meanwhile]
        self.reports, self.failures = [], []

        def record(report: BatchReport) -> None:
            self.reports.append(report)
            self.check_confirmed()
            self.on_report(report)
            if pending:
                pending.pop()()

        def fail(error: Exception, _step: NextStep) -> None:
            self.failures.append(error)

        loop = build_ingest_loop(
            self.spark,
            self.config,
            capture,
            stop=StopRequest(),
            on_report=record,
            on_error=fail,
        )
        self.ending = loop.run(once=True)
        self.check_confirmed()
        return self.reports

    @contextmanager
    def running(self) -> Iterator[Callable[[], None]]:
        """One process that goes on; each call of what is given takes what is there by then."""
        capture = self.capture()

        def take() -> None:
            goal = capture.source.newest()
            capture.ingester.step()
            while not capture.source.has_reached(goal):
                capture.source.wait(0.1, capture.limit)
                capture.ingester.step()
            self.check_confirmed()

        try:
            yield take
        finally:
            capture.ingester.close()

    def capture(self) -> Capture:
        """Everything an ingest is made of, as a new process would have it."""
        return build_capture(self.spark, self.config)

    def merge(self, *tables: str) -> dict[str, MergeReport]:
        """Bring all mirrors up to date, or those of these tables; by mirror."""
        chosen = [str(self.names(each).mirror) for each in tables]
        settings = load_merges(self.lake, self.config, chosen)
        return {
            mirror: Merger(self.spark, self.lake, each).merge() for mirror, each in settings.items()
        }

    def catch_up(self) -> list[BatchReport]:
        """Ingest, then merge."""
        reports = self.ingest()
        self.merge()
        return reports

    def resync(self, *tables: str) -> None:
        """Mark tables to be read again, as ``frazil resync`` does; the next ingest reads them."""
        load_resync(
            self.lake, self.config, [_qualified(each) for each in tables], everything=not tables
        ).apply()

    def states(self) -> dict[str, State]:
        """The state of every table by the ledger; tables in ``public`` without their schema."""
        return {
            each.table.removeprefix("public."): each.state for each in self.ledger().table_states()
        }

    def ledger(self) -> Ledger:
        """The pipeline's ledger."""
        return Ledger.open(self.lake, ledger_name(self.config))

    def table_failures(self) -> dict[str, FrazilError]:
        """Of the last ingest: tables that were left out, and why."""
        return {
            name.removeprefix("public."): error
            for report in self.reports
            for name, error in report.failures.items()
        }

    def check_confirmed(self) -> None:
        """The slot was never confirmed beyond what the ledger says."""
        confirmed = self.confirmed()
        marker = self.ledger().acknowledged()
        recorded = 0 if marker is None else parse_lsn(str(marker.position))
        assert marker is not None or confirmed is None, "a slot, and nothing in the ledger"
        assert confirmed is None or confirmed <= recorded, f"{confirmed:X} > {recorded:X}"

    def confirmed(self) -> int | None:
        """The position of the pipeline's slot; None without a slot."""
        assert self.config.source is not None
        slot = self.document["pipeline"] + "_frazil"
        rows = self.query(
            "select confirmed_flush_lsn::text as lsn from pg_replication_slots "
            f"where slot_name = '{slot}'"
        )
        return parse_lsn(rows[0]["lsn"]) if rows and rows[0]["lsn"] else None

    def reconfigure(
        self, *, source: Mapping[str, object] | None = None, **sections: object
    ) -> None:
        """Another document for the next ingest; ``source`` changes single keys."""
        self.document = {
            **self.document,
            **sections,
            "source": {**self.document["source"], **(source or {})},
        }
        self.config = _load(self.folder, self.document)

    # --- the lake ---

    def names(self, table: str) -> MirroredNames:
        """The tables of the lake for a table of the source."""
        source = _qualified(table)
        found = captured_names(self.config, [source])[source]
        assert isinstance(found, CapturedNames), found
        assert found.mirror is not None
        return MirroredNames(found.changelog, found.mirror)

    def has_mirror(self, table: str) -> bool:
        """Whether the lake has it."""
        return self.has_table(self.names(table).mirror)

    def has_changelog(self, table: str) -> bool:
        """Whether the lake has it."""
        return self.has_table(self.names(table).changelog)

    def has_table(self, name: TableName) -> bool:
        """Whether the lake has a table of this name."""
        self._refresh()
        try:
            self.lake.open(name).load_state()
        except FrazilError:
            return False
        return True

    def mirror_rows(self, table: str) -> list[Row]:
        """The rows of a mirror, in no order."""
        return self._rows(self.names(table).mirror)

    def changelog_rows(self, table: str) -> list[Row]:
        """The rows of a changelog in the order of the source; all columns."""
        rows = self._rows(self.names(table).changelog)
        return sorted(rows, key=lambda row: row["cdc_sequence_number"])

    def changes(self, table: str, *, since: str = "") -> list[Change]:
        """What a changelog has after the sequence number ``since``, in the source's order."""
        names = {
            number: name for name, number in self.field_ids(self.names(table).changelog).items()
        }
        return [
            Change(
                operation=row["cdc_operation"],
                row={name: value for name, value in row.items() if not name.startswith("cdc_")},
                unchanged=tuple(names[each] for each in row["cdc_unchanged"] or ()),
                previous=row.get("cdc_previous_key"),
                lsn=row["cdc_lsn"],
                sequence=row["cdc_sequence_number"],
                at=row["cdc_timestamp"],
            )
            for row in self.changelog_rows(table)
            if row["cdc_sequence_number"] > since
        ]

    def last_sequence(self, table: str) -> str:
        """The newest sequence number of a changelog."""
        return max((row["cdc_sequence_number"] for row in self.changelog_rows(table)), default="")

    def field_ids(self, name: TableName) -> dict[str, int]:
        """The ids of a table's columns by their names."""
        schema = self.lake.open(name).load_version().schema
        return {each.name: each.id for each in schema.fields}

    def assert_mirrored(self, *tables: str) -> None:
        """A mirror has exactly the rows of its source, in the columns that the source has."""
        for table in tables:
            self.assert_rows(table, self.source_rows(table))

    def assert_rows(self, table: str, expected: list[Row]) -> None:
        """A mirror has exactly these rows; columns that they do not have are not compared."""
        names = set(expected[0]) if expected else set()
        found = [
            {name: value for name, value in row.items() if name in names}
            for row in self.mirror_rows(table)
        ]
        assert in_order(found) == in_order(expected), table

    def _rows(self, name: TableName) -> list[Row]:
        self._refresh()
        rows = rows_by_pyiceberg(self.lake.open(name).load_metadata_location()).to_pylist()
        return [{column: plain(value) for column, value in row.items()} for row in rows]

    def _refresh(self) -> None:
        """See what other writers of the catalog did."""
        self.lake = Lake(self.spark, self.config.catalog.name)


_PLAIN: tuple[tuple[type | tuple[type, ...], Callable[[Any], Any]], ...] = (
    (float, lambda value: "NaN" if math.isnan(value) else value),
    (UUID, str),
    (Decimal, lambda value: format(value, "f")),
    ((memoryview, bytearray), bytes),
    (datetime, lambda value: value.astimezone(UTC) if value.tzinfo else value),
    (list, lambda value: [plain(each) for each in value]),
    (dict, lambda value: {name: plain(each) for name, each in value.items()}),
)


def plain(value: Any) -> Any:
    """A value as both readers would say it."""
    return next((say(value) for type_, say in _PLAIN if isinstance(value, type_)), value)


def in_order(rows: list[Row]) -> list[list[tuple[str, Any]]]:
    """Rows that can be compared whatever order they came in."""
    return sorted((sorted(row.items()) for row in rows), key=repr)


@contextmanager
def captured_database(
    spark: SparkSession,
    server: Postgres,
    folder: Path,
    *,
    source: Mapping[str, object] | None = None,
    **sections: object,
) -> Iterator[CapturedDatabase]:
    """A database of its own and a pipeline that captures it; nothing was read yet.

    ``source`` and ``sections`` go into the document as they are.
    """
    suffix = uuid4().hex[:8]
    with database_on(server, f"db_{suffix}") as database:
        document = {
            # Slots belong to the entire server, so that each pipeline has a name of its own.
            "pipeline": f"p_{suffix}",
            "catalog": {
                "name": f"cat_{suffix}",
                "kind": "sql",
                "uri": f"sqlite:///{folder}/{suffix}.db",
                "warehouse": f"file://{folder}/{suffix}",
            },
            "mirror": {"index": {"cache_dir": f"{folder}/cache_{suffix}"}},
            "retry": {"attempts": 2, "base": "50ms", "max": "100ms"},
            **sections,
            "source": {
                "kind": "postgres",
                "dsn": database.dsn.value,
                "tables": ["public.*"],
                "spool": {"dir": f"{folder}/spool_{suffix}"},
                **(source or {}),
            },
        }
        config = _load(folder, document)
        session = attach_session(spark, config)
        lake = Lake(session, config.catalog.name)
        yield CapturedDatabase(spark, database, folder, document, config, lake)


def _load(folder: Path, document: Mapping[str, object]) -> Config:
    path = folder / f"{document['pipeline']}.yaml"
    path.write_text(json.dumps(document, ensure_ascii=False))
    return load_config(path, environ={}).config


def _qualified(table: str) -> str:
    return table if "." in table else f"public.{table}"
