"""The mirror a merge writes to: its snapshot, schema, files and key."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from frazil.clients.iceberg.file_system import InputFiles, OutputFiles
from frazil.hooks import SystemClock
from frazil.mirror.index.keeping import IndexGrowth, IndexKeeper
from frazil.mirror.index.key_reading import as_scalar
from frazil.mirror.index.loading import Expectation
from frazil.mirror.index.locating import TaskIndex
from frazil.mirror.index.run_building import RunStore, fresh_name
from frazil.model.key_index import IndexKey, plan_key_hash
from frazil.model.policy import Order

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from frazil.clients.iceberg.read.table_metadata import SnapshotFacts, TableMetadata
    from frazil.clients.iceberg.write.write_target import WriteTarget
    from frazil.hooks import Clock, Randomness
    from frazil.merge.planning.settings import MergeSettings
    from frazil.mirror.index.loading import KeyIndex
    from frazil.mirror.table import MirrorTable
    from frazil.model.schema.types import Field, Scalar, Schema

# Properties that move a table's files outside its location; the last two are older spellings.
_PATHS = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeTarget:
    """One version of a mirror, and the names of its new files; lives on the driver."""

    mirror: MirrorTable
    state: TableMetadata
    write_target: WriteTarget
    key: tuple[Field, ...]
    sequence: Field | None
    sequence_type: Scalar
    randomness: Randomness

    @property
    def head(self) -> SnapshotFacts | None:
        """The snapshot that the merge is planned on."""
        return self.state.head

    @property
    def inputs(self) -> InputFiles:
        """How the mirror's files are read."""
        return InputFiles(dict(self.write_target.io_properties))

    @property
    def outputs(self) -> OutputFiles:
        """How files of the mirror are written."""
        return OutputFiles(dict(self.write_target.io_properties))

    @property
    def store(self) -> RunStore:
        """The folder of the index runs; the underscore hides it from orphan removal."""
        folder = f"{self.state.location}/_index"
        return RunStore(self.write_target.table, folder, self.write_target.io_properties)

    @property
    def index_key(self) -> IndexKey:
        """The key that the index hashes."""
        types = tuple(as_scalar(each.type) for each in self.key)
        return IndexKey(
            field_ids=tuple(each.id for each in self.key), types=types, hash=plan_key_hash(types)
        )

    @property
    def expected(self) -> Expectation:
        """The properties of a usable index."""
        return Expectation(
            table_uuid=self.state.uuid,
            key=self.index_key,
            sequence_type=None if self.sequence is None else self.sequence_type,
            locations=(
                self.state.location,
                *(self.state.properties[each] for each in _PATHS if each in self.state.properties),
            ),
        )

    def index_keeper(
        self,
        session: SparkSession,
        settings: MergeSettings,
        *,
        clock: Clock,
        remembered: Callable[[], DataFrame | None],
    ) -> IndexKeeper:
        """The keeper that reads, repairs and rebuilds the index of this mirror."""
        return IndexKeeper(
            session=session,
            table=self.mirror.table,
            store=self.store,
            inputs=self.inputs,
            expected=self.expected,
            key_fields=self.key,
            sequence_field=self.sequence,
            young_entries=settings.index.young_entries,
            clock=clock,
            randomness=self.randomness,
            remembered=remembered,
        )

    def name_head(self) -> str:
        """A fresh location for an index head, with Iceberg's ending for statistics files."""
        folder = self.state.properties.get("write.metadata.path", f"{self.state.location}/metadata")
        return f"{folder.rstrip('/')}/{fresh_name(self.randomness.token)}.stats"

    def name_delete_file(self, ending: str) -> str:
        """A fresh location for a delete file, in the folder of the data files."""
        return f"{self.write_target.data_location}/{fresh_name(self.randomness.token)}{ending}"


def load_target(
    mirror: MirrorTable,
    settings: MergeSettings,
    *,
    schema: Schema | None,
    key_ids: tuple[int, ...],
    sequence_id: int | None,
    sequence_type: Scalar,
    randomness: Randomness,
) -> MergeTarget:
    """The current mirror; ``schema`` is the one that this merge commits, if it changes."""
    version = mirror.table.load_version()
    target = version.write_target(schema)
    by_id = {each.id: each for each in target.schema.fields}
    per_key = settings.order is Order.PER_KEY and sequence_id is not None
    return MergeTarget(
        mirror=mirror,
        state=version.state,
        write_target=replace(target, row_group_rows=settings.write.row_group_rows),
        key=tuple(by_id[each] for each in key_ids),
        sequence=by_id[sequence_id] if per_key and sequence_id is not None else None,
        sequence_type=sequence_type,
        randomness=randomness,
    )


def plan_growth(
    session: SparkSession,
    target: MergeTarget,
    settings: MergeSettings,
    *,
    clock: Clock | None = None,
) -> IndexGrowth:
    """What extends the mirror's index by the entries of a commit."""
    index = settings.index
    oldest = (clock or SystemClock()).now() - settings.tombstones
    per_key = settings.order is Order.PER_KEY
    return IndexGrowth(
        session=session,
        store=cached_store(target, settings),
        young_entries=index.young_entries,
        max_runs=index.max_runs,
        upkeep_entries=index.upkeep_entries,
        tombstones_before=int(oldest.timestamp()) if per_key else None,
        randomness=target.randomness,
    )


def cached_store(target: MergeTarget, settings: MergeSettings) -> RunStore:
    """The folder of the index runs; what is written there is cached for lookups as well."""
    index = settings.index
    return replace(target.store, cache_dir=str(index.cache_dir), cache_bytes=index.cache_bytes)


def task_index(index: KeyIndex, target: MergeTarget, settings: MergeSettings) -> TaskIndex:
    """The index in the form that tasks search."""
    return TaskIndex(
        runs=index.manifest.runs,
        young=index.young_blob,
        files=index.manifest.files,
        io_properties=target.write_target.io_properties,
        cache_dir=str(settings.index.cache_dir),
        cache_bytes=settings.index.cache_bytes,
    )
