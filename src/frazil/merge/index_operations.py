"""Operations on a mirror's key index outside of merges: show, verify, rebuild."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from frazil.changelog.table import ChangelogTable
from frazil.clients.iceberg.commit.strict_commit import FileChanges
from frazil.clients.spark.pinned_session import pinned_session
from frazil.errors import MarkerLostError, StaleIndexError
from frazil.hooks import SystemClock, SystemRandomness
from frazil.merge.planning.changelog_columns import find_column
from frazil.merge.planning.column_mapping import decode_columns
from frazil.merge.reading.changelog_reader import remembered_deletes
from frazil.merge.target import load_target, task_index
from frazil.mirror.index.checking import IndexVerdict, check_index
from frazil.mirror.index.keeping import write_index_head
from frazil.mirror.index.key_reading import KeyReader, as_scalar
from frazil.mirror.index.loading import HEAD_PROPERTY, KeyIndex, Unusable, load_index
from frazil.mirror.index.run_building import fresh_name
from frazil.mirror.table import MirrorTable
from frazil.model.command import command
from frazil.model.key_index import Repair, RepairReason
from frazil.model.schema.types import Primitive
from frazil.model.table_facts import COLUMNS_PROPERTY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from frazil.clients.iceberg.lake import Lake
    from frazil.merge.planning.settings import MergeSettings
    from frazil.merge.target import MergeTarget
    from frazil.model.marker import Marker

__all__ = [
    "IndexFacts",
    "IndexVerdict",
    "find_index",
    "load_current_target",
    "load_index_facts",
    "rebuild_index",
    "verify_index",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """One run of an index."""

    entries: int
    bytes: int
    buckets: int
    files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFacts:
    """An index as described by its head; ``state`` says whether a merge would use it.

    ``unnamed_files`` are in the folder of the runs but belong to none of them: older heads may
    name them, and maintenance removes those that no head names.
    """

    state: str
    detail: str
    head: str | None
    snapshot: int | None
    key: tuple[str, ...]
    hash: str
    data_files: int
    entries: int
    young_entries: int
    runs: tuple[RunFacts, ...]
    bytes: int
    unnamed_files: int
    unnamed_bytes: int


def load_index_facts(session: SparkSession, lake: Lake, settings: MergeSettings) -> IndexFacts:
    """The facts about the index; reads only its head."""
    del session
    target = load_current_target(lake, settings)
    found = load_index(target.mirror.table.iter_ancestry(), target.inputs, target.expected)
    index = found.base if isinstance(found, Unusable) else found
    state, detail = ("current", "") if isinstance(found, KeyIndex) else (found.reason, found.detail)
    runs = () if index is None else index.manifest.runs
    named = {part.location.rpartition("/")[2] for run in runs for part in run.parts}
    sizes = target.inputs.sizes(target.store.folder)
    unnamed = {name: size for name, size in sizes.items() if name not in named}
    head = None if target.head is None else target.head.summary.get(HEAD_PROPERTY)
    young = None if index is None else index.young_blob
    return IndexFacts(
        state=state,
        detail=detail,
        head=head,
        snapshot=None if index is None else index.manifest.snapshot_id,
        key=tuple(each.name for each in target.key),
        hash=target.index_key.hash,
        data_files=0 if index is None else len(index.manifest.files),
        entries=0 if index is None else index.manifest.entries,
        young_entries=0 if index is None else index.manifest.young_entries,
        runs=tuple(
            RunFacts(
                entries=run.entries,
                bytes=run.bytes,
                buckets=2**run.bits,
                files=len(run.parts),
            )
            for run in runs
        ),
        bytes=sum(run.bytes for run in runs) + (0 if young is None else len(young)),
        unnamed_files=len(unnamed),
        unnamed_bytes=sum(unnamed.values()),
    )


def verify_index(session: SparkSession, lake: Lake, settings: MergeSettings) -> IndexVerdict:
    """Compare the index with the keys of all data files.

    Raises StaleIndexError when there is no index of the current state: the next merge repairs it.
    """
    target = load_current_target(lake, settings)
    if target.head is None:
        return IndexVerdict(0, 0, 0)
    found = load_index(target.mirror.table.iter_ancestry(), target.inputs, target.expected)
    if isinstance(found, Unusable):
        message = f"there is no index of the current state: {found.detail}."
        step = command("index", "rebuild", settings.mirror)
        raise StaleIndexError(message, table=str(settings.mirror), next_step=step)
    reader = KeyReader(
        target.mirror.table.name,
        found.manifest.files,
        target.key,
        None,
        target.write_target.io_properties,
    )
    return check_index(
        pinned_session(session),
        reader,
        task_index(found, target, settings),
        found.manifest.key.hash,
    )


def rebuild_index(
    session: SparkSession,
    lake: Lake,
    settings: MergeSettings,
) -> Repair:
    """Build the index from every data file and commit it; rows and position stay as they are."""
    target = load_current_target(lake, settings)
    marker = target.mirror.position()
    if marker is None or target.head is None:
        message = "nothing was merged into it yet, so there is nothing to index."
        raise MarkerLostError(message, table=str(settings.mirror), next_step="frazil merge --once")
    keeper = target.index_keeper(
        pinned_session(session),
        settings,
        clock=SystemClock(),
        remembered=lambda: _remembered(lake, target, marker, settings),
    )
    why = Unusable(RepairReason.MISSING, "requested by an operator")
    index, repair = keeper.repair(why, target.head)
    location = target.name_head()

    target.mirror.apply(
        FileChanges(),
        start=marker.position,
        goal=replace(marker, batch=fresh_name(target.randomness.token), snapshot=None),
        planned_on=target.head.id,
        summary={HEAD_PROPERTY: location},
        statistics=lambda snapshot: write_index_head(index, snapshot.id, location, target.outputs),
    )
    return repair


def find_index(
    session: SparkSession, lake: Lake, settings: MergeSettings, target: MergeTarget
) -> KeyIndex | None:
    """The index of the mirror's head, after a foreign commit with the files that it added.

    None where every file would have to be read: that is left to the next merge.
    """
    marker, head = target.mirror.position(), target.head
    if marker is None or head is None:
        return None
    keeper = target.index_keeper(
        pinned_session(session),
        settings,
        clock=SystemClock(),
        remembered=lambda: _remembered(lake, target, marker, settings),
    )
    found = keeper.find(head, target.mirror.table.iter_ancestry())
    if isinstance(found, KeyIndex):
        return found
    return None if found.base is None else keeper.repair(found, head)[0]


def load_current_target(lake: Lake, settings: MergeSettings) -> MergeTarget:
    """The current mirror, with the key that merges recorded."""
    mirror = MirrorTable.open(lake, settings.mirror)
    version = mirror.table.load_version()
    text = version.state.properties.get(COLUMNS_PROPERTY)
    if text is None:
        message = "no merge has written to it yet, so it has no index."
        raise MarkerLostError(message, table=str(settings.mirror), next_step="frazil merge --once")
    key_ids = decode_columns(text, table=str(settings.mirror)).key
    sequence = find_column(version.schema.fields, settings.sequence)
    return load_target(
        mirror,
        settings,
        schema=None,
        key_ids=key_ids,
        sequence_id=None if sequence is None else sequence.id,
        sequence_type=Primitive.STRING if sequence is None else as_scalar(sequence.type),
        randomness=SystemRandomness(),
    )


def _remembered(
    lake: Lake, target: MergeTarget, marker: Marker, settings: MergeSettings
) -> DataFrame | None:
    if not settings.remembers_deletes:
        return None
    changelog = ChangelogTable.open(lake, settings.changelog)
    return remembered_deletes(
        changelog, int(str(marker.position)), settings, target.index_key.types
    )
