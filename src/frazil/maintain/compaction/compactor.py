"""Begins rewrites: chooses what can be rewritten of the files asked for, and runs the tasks.

``Rewrite`` is what comes of it: files that no snapshot names yet, and where their rows came from.
It lands in one commit (``landing.py``) whenever the table has time for it; until then the process
may die, and maintenance removes the files by their age.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from frazil.clients.iceberg.write.sort_keys import plan_sort_keys
from frazil.clients.spark.pinned_session import pinned_session
from frazil.clients.spark.session import job_description
from frazil.codec.key_index.entries import Entries
from frazil.codec.key_index.key_hashing import hashes_columns
from frazil.errors import UnsupportedSchemaChangeError
from frazil.hooks import Failpoint, SystemClock, SystemRandomness, failpoint
from frazil.maintain.compaction.rewriting import RewriteGroup, indexed_file, rewrite_groups
from frazil.maintain.compaction.row_reading import (
    RewrittenFile,
    partition_constants,
    with_lineage,
)
from frazil.merge.index_operations import load_current_target
from frazil.merge.target import cached_store
from frazil.mirror.index.entry_writing import EntryPlan, numbered
from frazil.mirror.index.key_reading import KeyReader
from frazil.mirror.index.run_building import build_entries, fresh_name
from frazil.model.key_index import IndexedFile, IndexRun
from frazil.model.policy import CompactionOrder

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from pyspark.sql import SparkSession

    from frazil.clients.iceberg.lake import Lake
    from frazil.clients.iceberg.read.live_files import LiveFile
    from frazil.clients.iceberg.table import LakeTable, TableVersion
    from frazil.clients.iceberg.write.write_target import WriteTarget
    from frazil.maintain.compaction.rewriting import RewrittenGroup, RewrittenPortion
    from frazil.merge.planning.settings import MergeSettings
    from frazil.merge.target import MergeTarget
    from frazil.mirror.index.run_building import RunStore
    from frazil.model.key_index import IndexKey
    from frazil.model.schema.partitioning import PartitionSpec
    from frazil.model.schema.types import Scalar
    from frazil.model.table_name import TableName

_READABLE = "PARQUET"
# Entries of so few rows go into the head of the index, of more into a run.
_FEW_ROWS = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteOptions:
    """How files are rewritten.

    With ``moves_specs`` files of older partition specs get the table's current one; otherwise they
    keep theirs. ``order`` sorts rows by the table's sort order, if it has one. At most ``slots``
    tasks run at a time.
    """

    target_bytes: int | None = None
    moves_specs: bool = True
    order: CompactionOrder = CompactionOrder.KEEP
    slots: int = 1


@dataclass(frozen=True, slots=True)
class NewEntries:
    """Index entries of the new files, whose ordinals count from zero; few of them, or runs."""

    key: IndexKey
    sequence_type: Scalar | None
    entries: Entries
    runs: tuple[IndexRun, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """A finished rewrite of files as of one snapshot, which waits to land."""

    table: TableName
    snapshot_id: int
    sequence: int
    format_version: int
    groups: tuple[RewrittenGroup, ...]
    index: NewEntries | None
    bytes_read: int
    bytes_written: int
    left_out: int = 0

    @property
    def files(self) -> tuple[IndexedFile, ...]:
        """The new files, numbered from zero."""
        written = [file for group in self.groups for file in group.files]
        return tuple(indexed_file(each, at) for at, each in enumerate(written))


@dataclass(frozen=True, slots=True)
class Compactor:
    """Rewrites files of one table; lives on the driver.

    ``settings`` are those of the merges of a mirror, None for a table that is only appended to.
    """

    session: SparkSession
    lake: Lake
    table: TableName
    settings: MergeSettings | None = None

    def rewrite(
        self, locations: Collection[str], options: RewriteOptions | None = None
    ) -> Rewrite | None:
        """Write the live rows of these files again; None when none of them can be rewritten.

        Files that the table does not have any more are passed over, as are those that are not
        Parquet, that have equality deletes, or deletes that they share with others.
        """
        chosen = options or RewriteOptions()
        merge_target = (
            None if self.settings is None else load_current_target(self.lake, self.settings)
        )
        table = self.lake.open(self.table) if merge_target is None else merge_target.mirror.table
        version = table.load_version()
        # Files and schema of one moment: a column that came later would be lost.
        state = version.state if merge_target is None else merge_target.state
        head = state.head
        if head is None:
            return None
        picked = self._pick(table, head.id, frozenset(locations))
        if not picked:
            return None
        target = version.write_target() if merge_target is None else merge_target.write_target
        groups = tuple(_groups(version, picked, _sized(target, chosen), options=chosen))
        session = pinned_session(self.session)
        with job_description(session, f"compact {self.table}, {len(picked)} files"):
            portions = rewrite_groups(
                session,
                groups,
                table=str(self.table),
                slots=chosen.slots,
                index=None if merge_target is None else _entry_plan(merge_target, self.settings),
            )
            written = tuple(group for portion in portions for group in portion.groups)
            new = [file for group in written for file in group.files]
            failpoint(Failpoint.COMPACTION_WRITTEN)
            made = Rewrite(
                table=self.table,
                snapshot_id=head.id,
                sequence=head.sequence,
                format_version=target.format_version,
                groups=written,
                index=None,
                bytes_read=sum(each.size for each in picked),
                bytes_written=sum(each.size for each in new),
                left_out=len(locations) - len(picked),
            )
            if merge_target is None:
                return made
            index = self._collected(merge_target, portions)
            if index is None:
                index = self._index(session, merge_target, made.files)
            return replace(made, index=index)

    def _pick(
        self, table: LakeTable, snapshot_id: int, locations: frozenset[str]
    ) -> list[LiveFile]:
        live = table.load_live_files(snapshot_id)
        chosen = [each for each in live if each.location in locations and _is_rewritable(each)]
        # Older rows first, as they came.
        return sorted(chosen, key=lambda each: each.sequence)

    def _collected(
        self, target: MergeTarget, portions: Sequence[RewrittenPortion]
    ) -> NewEntries | None:
        """What the tasks have indexed of their files; None if they did not."""
        written, first = [], 0
        for each in portions:
            if each.entries is None:
                return None
            written.append(numbered(each.entries, first))
            first += each.files
        few = Entries.concatenate([each.few for each in written] or [Entries.empty()])
        runs = tuple(run for each in written for run in each.runs)
        if len(few) > _FEW_ROWS:
            store = _run_store(target, self.settings)
            runs = (*runs, store.write_run(fresh_name(SystemRandomness().token), few))
            few = Entries.empty()
        return NewEntries(target.expected.key, target.expected.sequence_type, few, runs)

    def _index(
        self, session: SparkSession, target: MergeTarget, files: Sequence[IndexedFile]
    ) -> NewEntries:
        """Hash keys that only Spark hashes, from the new files."""
        expected = target.expected
        reader = KeyReader(
            self.table, tuple(files), target.key, target.sequence, target.write_target.io_properties
        )
        built: IndexRun | Entries = Entries.empty()
        if files:
            built = build_entries(
                session,
                reader,
                _run_store(target, self.settings),
                hash_=expected.key.hash,
                run=fresh_name(SystemRandomness().token),
                small=_FEW_ROWS,
                now=int(SystemClock().now().timestamp()),
                # Another engine may have duplicated a key; its next change heals that.
                may_repeat=True,
            )
        if isinstance(built, IndexRun):
            return NewEntries(expected.key, expected.sequence_type, Entries.empty(), (built,))
        return NewEntries(expected.key, expected.sequence_type, built)


def _run_store(target: MergeTarget, settings: MergeSettings | None) -> RunStore:
    return target.store if settings is None else cached_store(target, settings)


def _entry_plan(target: MergeTarget, settings: MergeSettings | None) -> EntryPlan | None:
    """How tasks index what they write; None when only Spark hashes such keys."""
    hash_ = target.expected.key.hash
    if not hashes_columns(hash_):
        return None
    (key,) = target.key
    return EntryPlan(_run_store(target, settings), key, target.sequence, hash_, _FEW_ROWS)


def _is_rewritable(file: LiveFile) -> bool:
    """Deletes that serve several files must not go with one of them."""
    is_shared = any(each.data_file is None for each in file.deletes)
    return file.file_format == _READABLE and not file.equality_deletes and not is_shared


def _sized(target: WriteTarget, options: RewriteOptions) -> WriteTarget:
    return replace(
        target,
        schema=with_lineage(target.schema, target.format_version),
        target_file_bytes=options.target_bytes or target.target_file_bytes,
    )


def _groups(
    version: TableVersion,
    files: Sequence[LiveFile],
    target: WriteTarget,
    *,
    options: RewriteOptions,
) -> Iterator[RewriteGroup]:
    """Files of one partition that fill about one new file, for each partition.

    Rows that are sorted are sorted together, all of a partition.
    """
    keys = None
    if options.order is CompactionOrder.TABLE:
        sort_order = version.sort_order
        keys = plan_sort_keys(target.schema, sort_order)
        target = target if keys is None else replace(target, sort_order_id=sort_order.order_id)
    specs = {each.spec_id: version.spec_of(each.spec_id) for each in files}
    partitions: dict[tuple[int, str], list[LiveFile]] = {}
    for each in files:
        partitions.setdefault((each.spec_id, each.partition), []).append(each)
    for (spec_id, _), members in partitions.items():
        own = replace(target, spec=_new_spec(specs[spec_id], target, options))
        filled: list[LiveFile] = []
        for each in members:
            is_full = sum(map(_live_bytes, filled)) >= own.target_file_bytes
            if filled and is_full and keys is None:
                yield RewriteGroup(_rewritten(filled, specs[spec_id]), own)
                filled = []
            filled.append(each)
        yield RewriteGroup(_rewritten(filled, specs[spec_id]), own, keys)


def _new_spec(spec: PartitionSpec, target: WriteTarget, options: RewriteOptions) -> PartitionSpec:
    if options.moves_specs:
        return target.spec
    try:
        spec.check(target.schema)
    except UnsupportedSchemaChangeError:
        # A column that it needs was dropped.
        return target.spec
    return spec


def _live_bytes(file: LiveFile) -> int:
    dead = sum(each.rows for each in file.deletes)
    return file.size * max(file.rows - dead, 0) // max(file.rows, 1)


def _rewritten(files: Sequence[LiveFile], spec: PartitionSpec) -> tuple[RewrittenFile, ...]:
    return tuple(
        RewrittenFile(
            file=each.indexed(at),
            first_row_id=each.first_row_id,
            sequence=each.sequence,
            constants=partition_constants(spec, each.partition),
        )
        for at, each in enumerate(files)
    )
