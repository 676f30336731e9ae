"""Performs histories on real tables, and compares mirrors with the reference model."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock
from urllib.parse import urlsplit

from frazil.clients.iceberg.commit.retrying import RetryPolicy
from frazil.errors import CommitConflictError, DamagedIndexError, TableNotFoundError
from frazil.hooks import InjectedFault, armed
from frazil.merge.index_operations import verify_index
from frazil.merge.merger import Merger
from frazil.merge.planning import plan
from frazil.merge.planning.settings import IndexSettings, MergeSettings, WriteSettings
from frazil.mirror.index import run_merging
from frazil.mirror.index.loading import HEAD_PROPERTY
from frazil.mirror.table import MirrorTable
from frazil.model.policy import Deletes, OnDrop, Order
from frazil.model.schema.types import Primitive
from frazil.model.table_name import TableName, quote
from tests.support.merge.changelog import ModelChangelog
from tests.support.merge.comparing import MirrorReader, compare
from tests.support.merge.model import (
    Append,
    Compact,
    Crash,
    Expire,
    Lose,
    Merge,
    Overtake,
    Replay,
    Respec,
    Retain,
    Upgrade,
)
from tests.support.merge.values import type_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from frazil.clients.iceberg.lake import Lake
    from frazil.clients.iceberg.table import LakeTable
    from tests.support.merge.model import Column, History, Step

# There are no other writers, except those of the history itself.
_IMPATIENT = RetryPolicy(attempts=3, base_seconds=0.01, longest_seconds=0.05)
_BUCKETS = "buckets_of_another"
_NOT_BUCKETED = {Primitive.BOOLEAN, Primitive.FLOAT, Primitive.DOUBLE}
_COMPACTIONS = {
    "all": ("rewrite_data_files", "map('rewrite-all', 'true')"),
    "deletes": ("rewrite_data_files", "map('delete-file-threshold', '1')"),
    "dangling": (
        "rewrite_data_files",
        "map('rewrite-all', 'true', 'remove-dangling-deletes', 'true')",
    ),
    "positions": ("rewrite_position_delete_files", "map('rewrite-all', 'true')"),
}


@dataclass(slots=True)
class World:
    """The tables of one history, and their reference model.

    Merges are given ``session``; ``others`` is where other engines work, in the same session
    unless it is another.
    ``merged`` counts the changes that the mirror has, ``taken`` has for each snapshot of the
    changelog how many there were and which columns.
    """

    session: SparkSession
    lake: Lake
    catalog: str
    history: History
    folder: Path
    name: str
    others: SparkSession | None = None
    changelog: ModelChangelog = field(init=False)
    replay: Replay = field(init=False)
    position: int | None = None
    merged: int = 0
    caches: int = 0
    is_indexed: bool = False
    has_lost_runs: bool = False
    taken: dict[int, tuple[int, tuple[Column, ...]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        named = TableName(self.catalog, ("model",), f"{self.name}_changelog")
        self.changelog = ModelChangelog.create(self.lake, named, self.history)
        self.replay = Replay(self.history, self.history.format_version)

    @property
    def engine(self) -> SparkSession:
        """The session of other engines."""
        return self.session if self.others is None else self.others

    @property
    def mirror_name(self) -> TableName:
        """The mirror, which the first merge creates."""
        return TableName(self.catalog, ("model",), self.name)

    def run(self, *, check_merges: bool = False) -> None:
        """Perform the history and compare the mirror, at the end or after every merge."""
        for number, step in enumerate(self.history.steps):
            self.perform(step)
            is_last = number == len(self.history.steps) - 1
            if is_last or (check_merges and isinstance(step, Merge | Crash)):
                # A merge that had nothing to do leaves a damaged index as it is.
                has_index = isinstance(step, Merge) and self.is_indexed
                self.check(f"after step {number}", has_index=has_index)

    def perform(self, step: Step) -> None:
        """One step; those that need a mirror are nothing without one."""
        match step:
            case Append():
                self._noted(self.changelog.append(step))
            case Merge():
                self._merge(step)
            case Crash():
                self._crash(step)
            case _:
                mirror = self._mirror()
                if mirror is not None:
                    self._meddle(step, mirror)

    def _meddle(self, step: Step, mirror: LakeTable) -> None:
        match step:
            case Compact():
                is_mirror = step.table == "mirror"
                self._compact(mirror if is_mirror else self.changelog.table.table, step.how)
                self._noted(self.changelog.head())
            case Overtake():
                self._overtake(step, mirror)
            case Lose():
                self._lose(step, mirror)
            case Expire():
                self._expire(step.table, mirror)
            case Retain() if self.position is not None:
                self._noted(self.changelog.remove_merged(self.position))
            case Respec():
                self._respec(mirror)
            case Upgrade():
                change = f"alter table {mirror.name.quoted} set tblproperties"
                self.engine.sql(f"{change} ('format-version' = '3')")
                self.replay.format_version = 3

    def settings(self, *, max_rows: int = 0) -> MergeSettings:
        """The settings of a merge, with current column names."""
        history, spelled = self.history, self._spelled
        return MergeSettings(
            changelog=self.changelog.table.table.name,
            mirror=self.mirror_name,
            key=tuple(self.changelog.column(each).name for each in history.key),
            pipeline="model",
            order=Order(history.order),
            deletes=Deletes(history.deletes),
            on_drop=OnDrop(history.on_drop),
            format_version=history.format_version,
            partition_by=tuple(spelled(term, each) for term, each in history.partition_by),
            sort_by=tuple(spelled(term, each) for term, each in history.sort_by),
            max_rows=max_rows or 5_000_000,
            write=WriteSettings(row_group_rows=history.row_group_rows),
            index=IndexSettings(
                young_entries=history.young_entries,
                max_runs=history.max_runs,
                cache_dir=self.folder / f"cache-{self.name}-{self.caches}",
            ),
        )

    def check(self, when: str, *, has_index: bool) -> None:
        """Every reader sees the rows that the dictionaries have; the index, if any, is sound."""
        mirror = self._mirror()
        if mirror is None or self.position is None:
            assert self.position is None, f"{when}: there is no mirror"
            return
        reader = MirrorReader(mirror, self.replay, self.changelog.fields)
        for name, rows in reader.read_by_all():
            difference = compare(self.replay, reader.columns, rows)
            assert not difference, f"{when}, {name}: {difference}"
        if has_index:
            self._check_index(when)

    def _check_index(self, when: str) -> None:
        try:
            verdict = verify_index(self.session, self.lake, self.settings())
        except DamagedIndexError:
            # A run that is lost is found out by the merge that needs it.
            assert self.has_lost_runs, when
            return
        assert verdict.is_sound, f"{when}: {verdict}"
        assert verdict.rows == len(self.replay.rows), f"{when}: {verdict}"

    def _spelled(self, term: str, column: int) -> str:
        return term.format(f'"{self.changelog.column(column).name}"')

    def _noted(self, snapshot: int) -> None:
        self.taken[snapshot] = (len(self.changelog.changes), self.changelog.columns)

    def _merger(self, *, max_rows: int = 0) -> Merger:
        settings = self.settings(max_rows=max_rows)
        return Merger(self.session, self.lake, settings, retry=_IMPATIENT)

    def _merge(self, step: Merge) -> None:
        with self._tuned(step.bits):
            report = self._merger(max_rows=step.max_rows).merge()
        for commit in report.commits:
            assert commit.after == self.position
            self._advance(commit.through)
        self.is_indexed = bool(report.commits)

    def _crash(self, step: Crash) -> None:
        with self._tuned(step.bits), armed(f"{step.failpoint}=error@1"):
            try:
                report = self._merger().merge()
                assert not report.commits or step.failpoint == "commit.landed"
            except InjectedFault:
                pass
        mirror = self._mirror()
        marker = None if mirror is None else MirrorTable(mirror).position()
        if marker is not None and int(str(marker.position)) != self.position:
            assert step.failpoint == "commit.landed"
            self._advance(int(str(marker.position)))

    def _advance(self, through: int) -> None:
        """A commit of the mirror: a full read has the columns of its time, a range today's."""
        count, then = self.taken[through]
        columns = then if self.position is None else self.changelog.columns
        self.replay.commit(self.changelog.changes[self.merged : count], columns)
        self.merged, self.position = count, through

    @contextmanager
    def _tuned(self, bits: int) -> Iterator[None]:
        """Limits that make few rows as much work as many."""
        few = self.history.bucket_entries
        with (
            mock.patch.object(plan, "plan_bits", return_value=bits),
            mock.patch.object(run_merging, "_BUCKET_ENTRIES", few),
        ):
            yield

    def _mirror(self) -> LakeTable | None:
        try:
            return self.lake.open(self.mirror_name)
        except TableNotFoundError:
            return None

    def _compact(self, table: LakeTable, how: str) -> None:
        name = f"{table.name.namespace[0]}.{table.name.table}"
        # Another engine would not have our session's copy of the table.
        self.engine.sql(f"refresh table {table.name.quoted}")
        if how == "manifests":
            self.engine.sql(f"call {self.catalog}.system.rewrite_manifests('{name}')")
            return
        procedure, options = _COMPACTIONS[how]
        self.engine.sql(
            f"call {self.catalog}.system.{procedure}(table => '{name}', options => {options})"
        )

    def _respec(self, mirror: LakeTable) -> None:
        """Buckets of a key column, which is never dropped, come and go."""
        name = mirror.name.quoted
        if any(each.name == _BUCKETS for each in mirror.load_version().spec.fields):
            self.engine.sql(f"alter table {name} drop partition field {_BUCKETS}")
            return
        key = [self.replay.columns[each] for each in self.history.key if self.replay.columns]
        possible = [each.name for each in key if type_of(each.type) not in _NOT_BUCKETED]
        if possible:
            column = quote(possible[0])
            self.engine.sql(
                f"alter table {name} add partition field bucket(2, {column}) as {_BUCKETS}"
            )

    def _overtake(self, step: Overtake, mirror: LakeTable) -> None:
        merger = self._merger()
        planned = merger.load_plan()
        before = mirror.load_state().head
        self._compact(mirror, step.how)
        if planned is None or mirror.load_state().head == before:
            return
        try:
            merger.apply(planned)
        except CommitConflictError:
            return
        raise AssertionError("a merge was applied to a table that it was not planned on")

    def _lose(self, step: Lose, mirror: LakeTable) -> None:
        # An empty cache, so that lost files are noticed.
        self.caches += 1
        self.has_lost_runs |= step.what.startswith("run")
        heads = [
            each.summary[HEAD_PROPERTY]
            for each in mirror.load_ancestry()
            if HEAD_PROPERTY in each.summary
        ]
        runs = sorted(_path(f"{mirror.load_state().location}/_index").glob("*"))
        files = [_path(each) for each in heads[:1]] if step.what.startswith("head") else runs
        files = [each for each in files if each.exists()]
        if step.what in {"head", "runs"}:
            for each in files:
                each.unlink()
        elif step.what != "cache" and files:
            _flip(files[int(step.at * len(files))], step.at)

    def _expire(self, table: str, mirror: LakeTable) -> None:
        if table == "changelog":
            if self.position is not None:
                self.changelog.expire_before(self.engine, self.position)
            return
        name = f"{mirror.name.namespace[0]}.{mirror.name.table}"
        self.engine.sql(f"refresh table {mirror.name.quoted}")
        self.engine.sql(
            f"call {self.catalog}.system.expire_snapshots(table => '{name}', "
            "older_than => timestamp '2999-01-01 00:00:00', retain_last => 1)"
        )


def _path(location: str) -> Path:
    return Path(urlsplit(location).path)


def _flip(file: Path, at: float) -> None:
    """One bit of a file is wrong."""
    content = bytearray(file.read_bytes())
    content[int(at * len(content))] ^= 1 << int(at * 1_000) % 8
    file.write_bytes(content)
