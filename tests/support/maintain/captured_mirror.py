"""A changelog of our own ingest with its mirrors, and their upkeep some days later."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from frazil.changelog.table import ChangelogTable
from frazil.clients.iceberg.write.arrow_schema import arrow_schema
from frazil.clients.iceberg.write.task_writer import TaskWriter
from frazil.hooks import SystemClock, SystemRandomness
from frazil.maintain.facts import KeptRole
from frazil.maintain.maintainer import Maintainer
from frazil.maintain.settings import UpkeepSettings
from frazil.maintain.table_set import KeptTable
from frazil.model.marker import Marker
from tests.support.lake.mirrored import Mirrored

if TYPE_CHECKING:
    from frazil.clients.iceberg.lake import Lake
    from frazil.maintain.jobs import JobOutcome
    from frazil.model.policy import JobKind

SETTINGS = UpkeepSettings(
    compact=None,
    keep_snapshots=timedelta(hours=24),
    min_snapshots=2,
    max_manifests=4,
    retain=timedelta(days=7),
    orphan_age=timedelta(days=3),
)
NOW, LATER = timedelta(0), timedelta(days=8)


class Later(SystemClock):
    """The machine's time, some days on."""

    def __init__(self, by: timedelta) -> None:
        self._by = by

    def now(self) -> datetime:
        return super().now() + self._by


@dataclass
class Captured(Mirrored):
    """A changelog that an ingest of ours writes, and its mirrors."""

    others: list[Mirrored] = field(default_factory=list)

    def _append(self, rows: list[tuple[object, ...]]) -> None:
        table = self.lake.open(self.settings.changelog)
        target = table.load_write_target()
        writer = TaskWriter(target, clock=SystemClock(), randomness=SystemRandomness())
        named = zip(arrow_schema(target.schema), zip(*rows, strict=True), strict=True)
        arrays = {each.name: pa.array(values, each.type) for each, values in named}
        writer.write(pa.RecordBatch.from_pydict(arrays))
        changelog = ChangelogTable(table)
        before = changelog.position()
        goal = Marker(pipeline="p", source="s", position=str(self.at), batch=f"b{self.at}")
        start = None if before is None else before.position
        changelog.append(writer.close(), start=start, goal=goal)

    def second_mirror(self) -> Mirrored:
        """Another one of the same changelog."""
        number = len(self.others) + 2
        name = replace(self.settings.mirror, table=f"{self.settings.mirror.table}_{number}")
        other = Mirrored(self.spark, self.lake, replace(self.settings, mirror=name), self.expected)
        self.others.append(other)
        return other

    @property
    def kept_mirror(self) -> KeptTable:
        return KeptTable(name=self.settings.mirror, role=KeptRole.MIRROR, settings=SETTINGS)

    @property
    def kept_changelog(self) -> KeptTable:
        mirrors = (self.settings.mirror, *(each.settings.mirror for each in self.others))
        return KeptTable(
            name=self.settings.changelog,
            role=KeptRole.CHANGELOG,
            settings=SETTINGS,
            mirrors=mirrors,
        )

    def snapshots(self, table: str = "mirror") -> list[int]:
        self.sql(f"refresh table {{{table}}}")
        found = self.sql(f"select snapshot_id from {{{table}}}.snapshots order by committed_at")
        return [int(str(row[0])) for row in found]

    def files(self, table: str = "changelog") -> set[str]:
        self.sql(f"refresh table {{{table}}}")
        return {str(row[0]) for row in self.sql(f"select file_path from {{{table}}}.files")}

    def count_manifests(self) -> int:
        self.sql("refresh table {mirror}")
        return len(self.sql("select path from {mirror}.manifests"))


def maintain(
    lake: Lake, kept: KeptTable, *kinds: JobKind, by: timedelta = LATER
) -> list[JobOutcome]:
    """The jobs that the table needs by then, performed."""
    maintainer = Maintainer(lake, clock=Later(by))
    plan = maintainer.load_plan(kept, kinds or None)
    assert plan is not None
    return list(maintainer.perform(plan))
