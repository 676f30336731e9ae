"""What a tour proves at its end: mirrors equal their sources, and merges did what they report.

The last merge is compared with Iceberg's ``MERGE INTO``: the same changes into the same files.
"""

from __future__ import annotations

import json
import re
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from frazil.demo.tour.lake_folder import CATALOG
from frazil.demo.tour.shop import SCHEMA
from frazil.demo.tour.stock import STOCK, take_stock
from frazil.errors import ServiceError
from frazil.hooks import SystemClock
from frazil.model.table_name import parse_table_name
from frazil.pipeline.tables.captured_mirrors import load_captured_mirrors
from frazil.pipeline.tables.merge_settings import plan_merges
from frazil.pipeline.verification import build_source_verifier

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.clients.iceberg.lake import Lake
    from frazil.clients.spark.session import Session
    from frazil.config import Config
    from frazil.demo.tour.shop_workload import ShopCounts
    from frazil.demo.tour.tour_pipeline import PipelineThread
    from frazil.demo.tour.watch import TourWatch
    from frazil.hooks import Clock
    from frazil.model.table_name import TableName
    from frazil.verify.mirror_verifier import Verification

_COUNTED = f"{SCHEMA}.{STOCK}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LastMerge:
    """One merge of ours: which part of the changelog it took, and how long that lasted.

    ``after`` and ``through`` are snapshots of the changelog, ``before`` is one of the mirror.
    No key comes twice among its changes, and none was changed.
    """

    changelog: TableName
    mirror: TableName
    key: tuple[str, ...]
    operation: str
    after: int
    through: int
    before: int
    changes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeContest:
    """Seconds for the same changes into a table of so many rows."""

    mirror: TableName
    changes: int
    rows: int
    ours: float
    merge_into: float


def compare_merges(
    session: Session, lake: Lake, last: LastMerge, *, clock: Clock | None = None
) -> MergeContest:
    """Do the last merge again with ``MERGE INTO``, on copies of the mirror as it was before.

    The first copy is for warming up: our merge was not the process's first either. Raises
    ServiceError when the two did not come to the same rows.
    """
    watch = clock or SystemClock()
    columns = tuple(each.name for each in lake.open(last.mirror).load_schema().fields)
    seconds = 0.0
    for turn in ("warm_up", "measured"):
        with _copied(session, lake, last, f"{last.mirror.table}_{turn}") as copied:
            session.sql(f"refresh table {last.changelog.quoted}")
            statement = _statement(last, copied, columns)
            began = watch.monotonic()
            session.sql(statement)
            seconds = watch.monotonic() - began
            ours, theirs = (_digest(session, each, columns) for each in (last.mirror, copied))
        if ours != theirs:
            message = f"MERGE INTO came to other rows than the merge of {last.mirror}."
            raise ServiceError(message, next_step="report it, this is a defect in frazil")
    return MergeContest(
        mirror=last.mirror,
        changes=last.changes,
        rows=ours[0],
        ours=last.seconds,
        merge_into=seconds,
    )


@contextmanager
def _copied(session: Session, lake: Lake, last: LastMerge, name: str) -> Iterator[TableName]:
    """The mirror before the merge under another name, with the same files and another folder.

    What is written to the copy lies elsewhere, so that readers that search for the mirror's newest
    metadata by name never find the copy's.
    """
    mirror = last.mirror
    original = Path(re.sub(r"^file:/*", "/", lake.open(mirror).load_metadata_location()))
    metadata = json.loads(original.read_text(encoding="utf-8"))
    folder = original.parents[2] / f"{name}-{uuid4().hex[:8]}"
    metadata["location"] = f"file://{folder}"
    # The versions before are the mirror's, and not the copy's to clear away.
    metadata["metadata-log"] = []
    copied = folder / "metadata" / f"00000-{uuid4()}.metadata.json"
    copied.parent.mkdir(parents=True)
    copied.write_text(json.dumps(metadata), encoding="utf-8")
    other = replace(mirror, table=name)
    try:
        # With its catalog, else Spark resolves the namespace as a catalog.
        call, name = f"call {mirror.catalog}.system", f"{mirror.catalog}.{other}"
        session.sql(f"{call}.register_table(table => '{name}', metadata_file => 'file://{copied}')")
        session.sql(f"{call}.rollback_to_snapshot(table => '{name}', snapshot_id => {last.before})")
        session.sql(
            f"alter table {other.quoted} set tblproperties ('write.merge.mode' = 'merge-on-read')"
        )
        yield other
    finally:
        # Its own folder only: the oldest of its files are the mirror's.
        session.sql(f"drop table if exists {other.quoted}")
        shutil.rmtree(folder, ignore_errors=True)


def _statement(last: LastMerge, copied: TableName, columns: tuple[str, ...]) -> str:
    # Not a view: Spark fails to plan a MERGE from one over a range.
    changes = (
        f"(select * from {last.changelog.quoted} with "  # noqa: S608 - names of tables and columns
        f"(`start-snapshot-id` = '{last.after}', `end-snapshot-id` = '{last.through}'))"
    )
    same = " and ".join(f"t.{name} = s.{name}" for name in last.key)
    others = ", ".join(f"t.{name} = s.{name}" for name in columns if name not in last.key)
    names = ", ".join(columns)
    values = ", ".join(f"s.{name}" for name in columns)
    return (
        f"merge into {copied.quoted} t using {changes} s on {same} "  # noqa: S608
        f"when matched and s.{last.operation} = 'DELETE' then delete "
        f"when matched then update set {others} "
        f"when not matched and s.{last.operation} <> 'DELETE' "
        f"then insert ({names}) values ({values})"
    )


def _digest(session: Session, table: TableName, columns: tuple[str, ...]) -> tuple[int, str]:
    """Rows, and a sum over hashes of all their columns."""
    session.sql(f"refresh table {table.quoted}")
    ((count, total),) = session.sql(
        f"select count(*), sum(cast(xxhash64({', '.join(columns)}) as decimal(38, 0))) "  # noqa: S608
        f"from {table.quoted}"
    ).collect()
    return count, str(total)


class TourProof:
    """Compares Postgres with the lake."""

    def __init__(
        self, session: Session, lake: Lake, config: Config, pipeline: PipelineThread
    ) -> None:
        self._session = session
        self._lake = lake
        self._config = config
        self._pipeline = pipeline
        self._captured = load_captured_mirrors(lake, config)
        self._merges = plan_merges(config, (), captured=self._captured)

    def take_stock(self, dsn: str, rows: int, watch: TourWatch[ShopCounts]) -> LastMerge:
        """One large transaction in a shop at rest, and the merge that brings it to the mirror."""
        settings = self._merges[_COUNTED]
        after, before = self._head(settings.changelog), self._head(settings.mirror)
        changes = take_stock(dsn, rows)
        watch.until_caught_up()
        return LastMerge(
            changelog=settings.changelog,
            mirror=settings.mirror,
            key=settings.key,
            operation=settings.operation,
            after=after,
            through=self._head(settings.changelog),
            before=before,
            changes=changes,
            seconds=self._seconds_since(settings.mirror, before),
        )

    def _seconds_since(self, mirror: TableName, before: int) -> float:
        """How long the merges took that the mirror has had since a snapshot."""
        since = takewhile(lambda each: each.id != before, self._lake.open(mirror).iter_ancestry())
        snapshots = {each.id for each in since}
        return sum(
            commit.seconds or 0.0
            for table in self._pipeline.status().tables
            for commit in table.commits
            if table.mirror == str(mirror) and commit.snapshot_id in snapshots
        )

    def verify(self) -> list[Verification]:
        """Compare every mirror with its table, row for row. Raises ServiceError if one differs."""
        verifier = build_source_verifier(self._session, self._lake, self._config)
        if verifier is None:
            raise TypeError(self._config.source)
        found = []
        for mirror, settings in self._merges.items():
            verdict = verifier.verify(settings, self._captured[mirror].source)
            if not verdict.agrees or verdict.is_behind or verdict.unjudged:
                message = f"{mirror} is not what {self._captured[mirror].source} is: {verdict.note}"
                raise ServiceError(message, next_step="report it, this is a defect in frazil")
            found.append(verdict)
        return found

    def compare(self, last: LastMerge) -> MergeContest:
        """The last merge again, by ``MERGE INTO``."""
        return compare_merges(self._session, self._lake, last)

    def _head(self, table: TableName) -> int:
        head = self._lake.open(table).load_state().head
        if head is None:
            message = f"{table} is empty."
            raise ServiceError(message)
        return head.id


def table_location(lake: Lake, table: str) -> str:
    """The folder of a table."""
    name = parse_table_name(table, catalog=CATALOG)
    return lake.open(name).load_metadata_location().rpartition("/metadata/")[0]
