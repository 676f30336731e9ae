"""Removes files that no snapshot names: of attempts that died, and runs of expired indexes.

Only the table's own folders are listed, and only files that Iceberg or frazil writes there are
removed, by their names: s3 and s3a, or one slash more, make no difference. Files are listed before
it is read what snapshots name: one that is committed in between is named.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from frazil.clients.iceberg.file_system import InputFiles, OutputFiles
from frazil.codec.key_index.head import read_head
from frazil.codec.malformed import MalformedFileError
from frazil.errors import StorageError
from frazil.hooks import Failpoint, failpoint
from frazil.maintain.jobs import JobOutcome
from frazil.maintain.loading import ORPHANS_PROPERTY
from frazil.mirror.index.loading import HEAD_PROPERTY
from frazil.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from frazil.clients.iceberg.file_system import ListedFile
    from frazil.clients.iceberg.read.table_metadata import SnapshotFacts
    from frazil.clients.iceberg.table import LakeTable
    from frazil.clients.iceberg.upkeep import MetadataFacts, TableUpkeep
    from frazil.maintain.jobs import OrphansJob

_log = get_logger(__name__)

# What is written in each of them; a file of another kind is not ours, and stays.
_FOLDERS = {
    "data": (".parquet", ".avro", ".orc", ".puffin"),
    "metadata": (".avro", ".metadata.json", ".metadata.json.gz", ".stats", ".puffin", ".parquet"),
}
_INDEX_FOLDER = "_index"
_THREADS = 16
# Names in memory at a time.
_AT_ONCE = 100_000


def run_orphans(table: LakeTable, job: OrphansJob, *, now: Callable[[], datetime]) -> JobOutcome:
    """List, compare, remove, and write down when; a kill leaves the rest for the next time."""
    inputs = InputFiles(dict(table.load_write_target().io_properties))
    outputs = OutputFiles(dict(table.load_write_target().io_properties))
    upkeep = table.upkeep()
    location = upkeep.load_metadata().location.rstrip("/")
    limit = job.before.timestamp()
    removed, freed = 0, 0
    for candidates in _chunks(_candidates(inputs, location, limit)):
        table.show_latest()
        orphans = _unnamed(upkeep, candidates)
        removed += _remove(outputs, orphans)
        freed += sum(each.size for each in orphans)
    runs = _unnamed_runs(inputs, upkeep.load_metadata(), location, limit)
    removed += _remove(outputs, runs)
    freed += sum(each.size for each in runs)
    failpoint(Failpoint.MAINTAIN_REMOVED)
    upkeep.note({ORPHANS_PROPERTY: now().isoformat()})
    table.show_latest()
    return JobOutcome(job=job, files_removed=removed, bytes_removed=freed)


def _candidates(inputs: InputFiles, location: str, limit: float) -> Iterator[ListedFile]:
    for folder, endings in _FOLDERS.items():
        for each in inputs.iter_tree(f"{location}/{folder}"):
            if each.modified < limit and each.location.endswith(endings):
                yield each


def _chunks(files: Iterable[ListedFile]) -> Iterator[list[ListedFile]]:
    chunk: list[ListedFile] = []
    for each in files:
        chunk.append(each)
        if len(chunk) >= _AT_ONCE:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _unnamed(upkeep: TableUpkeep, candidates: Sequence[ListedFile]) -> list[ListedFile]:
    """Those of the files that neither the metadata nor any manifest names."""
    metadata = upkeep.load_metadata()
    # The summary names an index whose statistics another tool has replaced.
    listed = (*metadata.files, *metadata.manifest_lists, *_heads(metadata.snapshots))
    known = {_name(each) for each in listed}
    left = [each for each in candidates if _name(each.location) not in known]
    unnamed = upkeep.find_unnamed([_name(each.location) for each in left]) if left else ()
    return [each for each in left if _name(each.location) in unnamed]


def _name(location: str) -> str:
    """The name without its folders: every spelling of a location ends with it."""
    return location.rpartition("/")[2]


def _heads(snapshots: Iterable[SnapshotFacts]) -> Iterator[str]:
    for each in snapshots:
        if HEAD_PROPERTY in each.summary:
            yield each.summary[HEAD_PROPERTY]


def _unnamed_runs(
    inputs: InputFiles, metadata: MetadataFacts, location: str, limit: float
) -> list[ListedFile]:
    """Runs of the key index that no index of a listed snapshot names.

    A run is in the indexes of consecutive snapshots: one that is older than the oldest snapshot of
    the line is in that one's index, in the newest, or in none of the line.
    """
    by_id = {each.id: each for each in metadata.snapshots}
    line: list[SnapshotFacts] = []
    current = None if metadata.head is None else by_id.get(metadata.head)
    while current is not None:
        line.append(current)
        current = None if current.parent is None else by_id.get(current.parent)
    if line:
        limit = min(limit, line[-1].committed_at / 1000)
    old = [
        each
        for each in inputs.iter_tree(f"{location}/{_INDEX_FOLDER}")
        if each.modified < limit and each.location.endswith(".puffin")
    ]
    if not old:
        return []
    in_line = {each.id for each in line}
    heads = [*_heads(line)]
    wanted = {*heads[:1], *heads[-1:]}
    wanted.update(_heads(each for each in metadata.snapshots if each.id not in in_line))
    named: set[str] = set()
    for head in sorted(wanted):
        try:
            manifest, _ = read_head(inputs.read(head))
        except (StorageError, MalformedFileError) as error:
            if isinstance(error, StorageError) and error.is_gone:
                continue
            # It may name any of them.
            _log.warning("an index cannot be read, its runs stay", head=head)
            return []
        named |= {_name(part.location) for run in manifest.runs for part in run.parts}
    return [each for each in old if _name(each.location) not in named]


def _remove(outputs: OutputFiles, files: Sequence[ListedFile]) -> int:
    with ThreadPoolExecutor(_THREADS) as pool:
        for _ in pool.map(outputs.remove, (each.location for each in files)):
            failpoint(Failpoint.MAINTAIN_REMOVED)
    return len(files)
