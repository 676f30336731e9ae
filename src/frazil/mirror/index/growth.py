"""Extends an index by a merge: new entries join the young run, and runs are merged when due."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from frazil.codec.key_index.entries import Entries
from frazil.codec.key_index.head import write_head
from frazil.codec.key_index.run import encode_run
from frazil.mirror.index.loading import KeyIndex
from frazil.mirror.index.run_building import RunMerger, fresh_name, merge_runs
from frazil.mirror.index.run_merging import plan_bits, plan_run_merge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from frazil.clients.iceberg.file_system import OutputFiles
    from frazil.hooks import Randomness
    from frazil.mirror.index.run_building import RunStore
    from frazil.model.key_index import IndexedFile, IndexManifest, IndexRun


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexGrowth:
    """Settings of an index's growth; tombstones older than ``tombstones_before`` are dropped."""

    session: SparkSession
    store: RunStore
    young_entries: int
    max_runs: int
    tombstones_before: int | None
    randomness: Randomness

    def grown(
        self,
        index: KeyIndex,
        *,
        files: tuple[IndexedFile, ...],
        next_ordinal: int,
        entries: Entries,
        new_run: IndexRun | None,
    ) -> KeyIndex:
        """The index after a merge, without its snapshot id."""
        young = Entries.concatenate([index.young, entries])
        runs = index.manifest.runs if new_run is None else (*index.manifest.runs, new_run)
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
        chosen = plan_run_merge([run.entries for run in runs], self.max_runs)
        if not chosen:
            return runs
        together = tuple(runs[at] for at in chosen)
        merger = RunMerger(
            store=self.store,
            run=self._name(),
            bits=plan_bits(sum(run.entries for run in together)),
            runs=together,
            files=files,
            tombstones_before=self.tombstones_before,
        )
        merged = merge_runs(self.session, merger)
        rest = tuple(run for at, run in enumerate(runs) if at not in chosen)
        return (*rest, merged) if merged.parts else rest

    def _name(self) -> str:
        return fresh_name(self.randomness.token)


@dataclass(frozen=True, slots=True)
class WrittenHead:
    """A head file as a statistics entry names it."""

    location: str
    size: int
    footer_size: int


def write_index_head(
    index: KeyIndex, snapshot_id: int, location: str, outputs: OutputFiles
) -> WrittenHead:
    """Write the index as that of a snapshot that is about to be committed."""
    manifest: IndexManifest = replace(index.manifest, snapshot_id=snapshot_id)
    head = write_head(manifest, index.young_blob)
    outputs.write_file(location, head.data)
    return WrittenHead(location, len(head.data), head.footer_size)
