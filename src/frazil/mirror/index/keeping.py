"""Provides an index of the table's current state: loaded, repaired or rebuilt, later extended."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING

from frazil.clients.iceberg.commit.strict_commit import StatisticsFile
from frazil.codec.key_index.entries import Entries
from frazil.codec.key_index.head import write_head
from frazil.codec.key_index.run import encode_run
from frazil.errors import EqualityDeletesError, UnsupportedSchemaChangeError
from frazil.mirror.index.key_reading import KeyReader, rewrite_command
from frazil.mirror.index.loading import Expectation, KeyIndex, Unusable, count_deletes, load_index
from frazil.mirror.index.run_building import RunMerger, build_entries, fresh_name, merge_runs
from frazil.mirror.index.run_merging import plan_bits, plan_bounded_merge
from frazil.model.key_index import IndexedFile, IndexManifest, IndexRun, Repair, RepairReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from frazil.clients.iceberg.file_system import InputFiles, OutputFiles
    from frazil.clients.iceberg.read.live_files import LiveFile
    from frazil.clients.iceberg.read.table_metadata import SnapshotFacts
    from frazil.clients.iceberg.table import LakeTable
    from frazil.hooks import Clock, Randomness
    from frazil.mirror.index.run_building import RunStore
    from frazil.model.schema.types import Field

# Snapshot ids are positive; an index of an empty table belongs to none.
_NO_SNAPSHOT = 0
_READABLE = "PARQUET"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexKeeper:
    """Loads, repairs and rebuilds the index of one mirror; lives on the driver.

    ``remembered`` returns the deleted keys of an index with sequences, which are in no data file:
    the halves of their hash and their sequence, in this order.
    """

    session: SparkSession
    table: LakeTable
    store: RunStore
    inputs: InputFiles
    expected: Expectation
    key_fields: tuple[Field, ...]
    sequence_field: Field | None
    young_entries: int
    clock: Clock
    randomness: Randomness
    remembered: Callable[[], DataFrame | None]

    def find(self, head: SnapshotFacts, ancestry: Iterable[SnapshotFacts]) -> KeyIndex | Unusable:
        """The index of the head, which is the first of ``ancestry``, or why it is unusable."""
        found = load_index(ancestry, self.inputs, self.expected)
        if isinstance(found, KeyIndex) or head.count("total-data-files"):
            return found
        # Nothing was merged yet.
        return self.empty(head) if found.reason is RepairReason.NO_ANCESTOR else found

    def repair(self, why: Unusable, head: SnapshotFacts) -> tuple[KeyIndex, Repair]:
        """Build the index from the files added since its base, or from every file.

        Raises EqualityDeletesError, DuplicateKeyError, NullKeyError, and for files that are not
        Parquet UnsupportedSchemaChangeError.
        """
        live = self.table.load_live_files(head.id)
        self._refuse_unreadable(live)
        base = self.empty(head) if why.base is None else why.base
        files, added = _file_table(base.manifest, live)
        highest = max((each.ordinal for each in files), default=-1)
        manifest = replace(
            base.manifest,
            snapshot_id=head.id,
            files=files,
            idle_deletes=head.count("total-delete-files") - count_deletes(files),
            next_ordinal=max(base.manifest.next_ordinal, highest + 1),
        )
        remembered = self.remembered() if why.base is None else None
        index = self._with_keys_of(
            added, remembered, KeyIndex(manifest, base.young, base.young_blob)
        )
        return index, Repair(why.reason, why.detail, len(added), rebuilt=why.base is None)

    def _with_keys_of(
        self, added: Sequence[IndexedFile], remembered: DataFrame | None, index: KeyIndex
    ) -> KeyIndex:
        if not added and remembered is None:
            return index
        reader = KeyReader(
            self.table.name,
            tuple(added),
            self.key_fields,
            self.sequence_field,
            self.store.io_properties,
        )
        built = build_entries(
            self.session,
            reader,
            self.store,
            hash_=self.expected.key.hash,
            run=fresh_name(self.randomness.token),
            # The number of remembered keys is not known before they are read.
            small=self.young_entries - len(index.young) if remembered is None else -1,
            remembered=remembered,
            now=int(self.clock.now().timestamp()),
        )
        if isinstance(built, IndexRun):
            runs = (*index.manifest.runs, built) if built.parts else index.manifest.runs
            return replace(index, manifest=replace(index.manifest, runs=runs))
        return _with_young(index, built)

    def empty(self, head: SnapshotFacts | None) -> KeyIndex:
        """The index of a mirror without rows."""
        manifest = IndexManifest(
            table_uuid=self.expected.table_uuid,
            snapshot_id=_NO_SNAPSHOT if head is None else head.id,
            generation=fresh_name(self.randomness.token),
            key=self.expected.key,
            next_ordinal=0,
            files=(),
            sequence_type=self.expected.sequence_type,
        )
        return KeyIndex(manifest, Entries.empty(), None)

    def _refuse_unreadable(self, live: Sequence[LiveFile]) -> None:
        """Refuse files that are not Parquet, and equality deletes."""
        others = [each.file_format for each in live if each.file_format != _READABLE]
        if others:
            message = (
                f"{len(others)} data files of another engine are not Parquet but "
                f"{', '.join(sorted(set(others)))}; see its property write.format.default."
            )
            remedy = rewrite_command(self.table.name, "'rewrite-all', 'true'")
            raise UnsupportedSchemaChangeError(message, table=self.store.table, next_step=remedy)
        concerned = sum(bool(each.equality_deletes) for each in live)
        if concerned:
            message = f"{concerned} data files have equality deletes of another engine."
            remedy = rewrite_command(self.table.name, "'delete-file-threshold', '1'")
            raise EqualityDeletesError(message, table=self.store.table, next_step=remedy)


def _with_young(index: KeyIndex, entries: Entries) -> KeyIndex:
    young = Entries.concatenate([index.young, entries]).sorted()
    blob = encode_run(young) if len(young) else None
    return KeyIndex(replace(index.manifest, young_entries=len(young)), young, blob)


def _file_table(
    base: IndexManifest, live: Sequence[LiveFile]
) -> tuple[tuple[IndexedFile, ...], tuple[IndexedFile, ...]]:
    """The live files, and those among them that are not in the index."""
    known = {each.location: each.ordinal for each in base.files}
    fresh = count(base.next_ordinal)
    files = tuple(
        each.indexed(known[each.location] if each.location in known else next(fresh))
        for each in live
    )
    return files, tuple(each for each in files if each.location not in known)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexGrowth:
    """Extends an index: new entries join the young run, and small runs are merged when due.

    Larger runs are merged in the background; what a commit waits for is bounded by
    ``upkeep_entries``, unless nobody merged runs for so long that lookups would suffer.
    Tombstones older than ``tombstones_before`` are dropped.
    """

    session: SparkSession
    store: RunStore
    young_entries: int
    max_runs: int
    upkeep_entries: int
    tombstones_before: int | None
    randomness: Randomness

    def grown(
        self,
        index: KeyIndex,
        *,
        files: tuple[IndexedFile, ...],
        next_ordinal: int,
        entries: Entries,
        new_runs: tuple[IndexRun, ...] = (),
    ) -> KeyIndex:
        """The index after a merge, without its snapshot id."""
        young = Entries.concatenate([index.young, entries])
        runs = (*index.manifest.runs, *new_runs)
        if len(young) > self.young_entries:
            flushed = self.store.write_run(self._name(), young)
            runs, young = (*runs, flushed), Entries.empty()
        runs = self._merged(runs, files)
        blob = encode_run(young.sorted()) if len(young) else None
        manifest = replace(
            index.manifest,
            files=files,
            runs=runs,
            next_ordinal=next_ordinal,
            young_entries=len(young),
        )
        return KeyIndex(manifest, young, blob)

    def _merged(
        self, runs: tuple[IndexRun, ...], files: tuple[IndexedFile, ...]
    ) -> tuple[IndexRun, ...]:
        sizes = [run.entries for run in runs]
        chosen = plan_bounded_merge(sizes, self.max_runs, self.upkeep_entries)
        if not chosen:
            return runs
        merged = self.merge(tuple(runs[at] for at in chosen), files)
        rest = tuple(run for at, run in enumerate(runs) if at not in chosen)
        return (*rest, merged) if merged.parts else rest

    def merge(
        self, runs: tuple[IndexRun, ...], files: tuple[IndexedFile, ...], *, slots: int = 0
    ) -> IndexRun:
        """One run with the live entries of these, in no index yet; ``slots`` as in merge_runs."""
        merger = RunMerger(
            store=self.store,
            run=self._name(),
            bits=plan_bits(sum(run.entries for run in runs)),
            runs=runs,
            files=files,
            tombstones_before=self.tombstones_before,
        )
        return merge_runs(self.session, merger, slots=slots)

    def _name(self) -> str:
        return fresh_name(self.randomness.token)


def write_index_head(
    index: KeyIndex, snapshot_id: int, location: str, outputs: OutputFiles
) -> StatisticsFile:
    """Write the index as that of a snapshot that is about to be committed."""
    manifest: IndexManifest = replace(index.manifest, snapshot_id=snapshot_id)
    head = write_head(manifest, index.young_blob)
    outputs.write_file(location, head.data)
    return StatisticsFile(location, len(head.data), head.footer_size)
