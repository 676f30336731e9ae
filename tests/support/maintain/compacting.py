"""Histories of a mirror with compactions that begin and land between any two of their steps."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from unittest import mock

from pyspark.sql import functions as sf

from frazil.errors import TableNotFoundError
from frazil.hooks import InjectedFault, armed
from frazil.maintain.compaction import compactor
from frazil.maintain.compaction.compactor import Compactor, RewriteOptions
from frazil.maintain.compaction.index_runs import land_runs, merge_index_runs
from frazil.maintain.compaction.landing import Abandoned, Landed, land
from frazil.maintain.compaction.sites import LogSite, MirrorSite
from frazil.mirror.table import MirrorTable
from frazil.model.policy import CompactionOrder
from frazil.model.table_name import quote
from tests.support.merge.model import Append, Change

if TYPE_CHECKING:
    from frazil.clients.iceberg.table import LakeTable
    from frazil.maintain.compaction.compactor import Rewrite
    from frazil.maintain.compaction.index_runs import MergedRuns
    from tests.support.merge.world import World

_LINEAGE_FORMAT = 3
# Where a landing may die; the last one is after its commit.
_DEATHS = ("compaction.translated", "commit.planned", "commit.staged", "commit.landed")


@dataclass(slots=True)
class CompactingWorld:
    """A world whose tables are compacted all the time; ``landed`` counts what came of it."""

    world: World
    seed: int
    waiting: list[Rewrite] = field(default_factory=list)
    runs: list[MergedRuns] = field(default_factory=list)
    landed: list[Landed] = field(default_factory=list)
    abandoned: list[str] = field(default_factory=list)
    chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)  # noqa: S311 - repeatable on purpose

    def run(self) -> None:
        """Perform the history; after every landing and at the end the mirror is compared."""
        for number, step in enumerate(self.world.history.steps):
            self.meddle(f"before step {number}, {type(step).__name__}")
            self.world.perform(step)
        self.meddle("at the end")
        while self.waiting or self.runs:
            self._land_any("at the end")
        self.check("at the end")

    def meddle(self, when: str) -> None:
        """Begin, die, or land something, by chance."""
        mirror = self._mirror()
        if mirror is None or self.world.position is None:
            return
        if self.chance.random() < 0.3:
            self._sort(mirror)
        if self.chance.random() < 0.5:
            self._begin(mirror)
        if self.chance.random() < 0.2:
            self._resync()
        if self.chance.random() < 0.2:
            self._merge_runs()
        if self.chance.random() < 0.2:
            self._compact_changelog()
        while (self.waiting or self.runs) and self.chance.random() < 0.5:
            self._land_any(when)

    def check(self, when: str) -> None:
        """Every reader sees the rows of the model, and the index, if there is one, is sound."""
        world = self.world
        site = MirrorSite(world.session, world.lake, world.settings())
        world.check(when, has_index=site.load().index is not None and self._is_current())

    def _is_current(self) -> bool:
        mirror = self._mirror()
        head = None if mirror is None else mirror.load_state().head
        return head is not None and "frazil.index" in head.summary

    def _mirror(self) -> LakeTable | None:
        try:
            return self.world.lake.open(self.world.mirror_name)
        except TableNotFoundError:
            return None

    def _sort(self, mirror: LakeTable) -> None:
        """Another engine sorts the table by a part of its key, which is never dropped."""
        world = self.world
        column = quote(world.replay.columns[self.chance.choice(world.history.key)].name)
        way = self.chance.choice(("asc", "desc")), self.chance.choice(("first", "last"))
        world.engine.sql(f"refresh table {mirror.name.quoted}")
        world.engine.sql(
            f"alter table {mirror.name.quoted} write ordered by {column} {way[0]} nulls {way[1]}"
        )

    def _resync(self) -> None:
        """The source sends the table again: a TRUNCATE, and every row as an initial copy has it."""
        world, replay = self.world, self.world.replay
        sent, history = world.changelog.changes, world.history
        is_plain = (history.order, history.deletes) == ("append", "apply")
        if not is_plain or world.merged < len(sent) or replay.live != world.changelog.columns:
            return
        # Between the last transaction and the next one, whose numbers are a thousand higher.
        last = max(each.sequence for each in sent)
        first = last - last % 1_000 + 500
        if last >= first:
            return
        ids = [each.id for each in replay.live]
        rows = [
            Change(
                operation="READ",
                sequence=first + 1 + number,
                values=tuple((each, row.values[each]) for each in ids),
            )
            for number, row in enumerate(replay.rows.values())
        ]
        world.perform(Append(changes=(Change(operation="TRUNCATE", sequence=first), *rows)))

    def _begin(self, mirror: LakeTable) -> None:
        head = mirror.load_state().head
        assert head is not None
        busy = {
            source.location
            for rewrite in self.waiting
            for group in rewrite.groups
            for source in group.layout.sources
        }
        live = [each.location for each in mirror.load_live_files(head.id)]
        chosen = [each for each in live if each not in busy and self.chance.random() < 0.8]
        if not chosen:
            return
        world = self.world
        made = Compactor(world.session, world.lake, world.mirror_name, world.settings())
        options = RewriteOptions(
            target_bytes=self.chance.choice([None, 4_000]),
            moves_specs=self.chance.random() < 0.5,
            order=self.chance.choice(list(CompactionOrder)),
            slots=2,
        )
        few = mock.patch.object(compactor, "_FEW_ROWS", self.chance.choice([0, 10_000]))
        dies = self.chance.random() < 0.1
        with few, world._tuned(0), armed("compaction.written=error@1" if dies else ""):
            try:
                rewrite = made.rewrite(chosen, options)
            except InjectedFault:
                return
        if rewrite is not None:
            self.waiting.append(rewrite)

    def _merge_runs(self) -> None:
        world = self.world
        if self.runs or world.has_lost_runs:
            return
        with world._tuned(0):
            merged = merge_index_runs(world.session, world.lake, world.settings())
        if merged is not None:
            self.runs.append(merged)

    def _compact_changelog(self) -> None:
        world = self.world
        table = world.changelog.table.table
        head = table.load_state().head
        if head is None:
            return
        files = [each.location for each in table.load_live_files(head.id)]
        rewrite = Compactor(world.session, world.lake, table.name).rewrite(files)
        if rewrite is not None:
            found = land(rewrite, LogSite(world.lake, table.name))
            assert isinstance(found, Landed), found
            world._noted(world.changelog.head())

    def _land_any(self, when: str) -> None:
        world = self.world
        site = MirrorSite(world.session, world.lake, world.settings())
        if self.runs:
            found = land_runs(self.runs.pop(), site)
        else:
            rewrite = self.waiting.pop(self.chance.randrange(len(self.waiting)))
            found = self._land(rewrite, site)
        if isinstance(found, Abandoned):
            self.abandoned.append(found.reason)
            return
        self.landed.append(found)
        self.check(f"{when}, after a landing")

    def _land(self, rewrite: Rewrite, site: MirrorSite) -> Landed | Abandoned:
        mirror = self._mirror()
        assert mirror is not None
        before, marker = self._lineage(mirror), MirrorTable(mirror).position()
        death = self.chance.choice(_DEATHS) if self.chance.random() < 0.3 else None
        if death is not None:
            with armed(f"{death}=error@1"):
                try:
                    found = land(rewrite, site)
                except InjectedFault:
                    # After its own commit the files are there: landing again finds none of the old.
                    found = land(rewrite, site)
                    assert (death == "commit.landed") == isinstance(found, Abandoned), found
        else:
            found = land(rewrite, site)
        after_landing = self._lineage(mirror)
        assert len(after_landing) == len(before)
        # Rows of a table that was upgraded get their identity with its next commit.
        assert {row for row in before if row[-2] is not None} <= after_landing
        after = MirrorTable(mirror).position()
        assert marker is not None
        assert after is not None
        assert (after.position, after.batch) == (marker.position, marker.batch)
        return found

    def _lineage(self, mirror: LakeTable) -> set[tuple[object, ...]]:
        """Identity and age of every row, with its key."""
        if mirror.load_state().format_version < _LINEAGE_FORMAT:
            return set()
        key = [quote(self.world.replay.columns[each].name) for each in self.world.history.key]
        # Hashed, because Python has no dates of before the first year.
        hashed = sf.xxhash64(*map(sf.col, key))
        rows = mirror.read().select(hashed, "_row_id", "_last_updated_sequence_number")
        return {tuple(row) for row in rows.collect()}
