"""The parts of a table's metadata that grow with every commit, and Iceberg's calls to shrink them.

Everything is counted from metadata and manifest lists; no data file is opened.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from frazil.clients.iceberg.commit.upkeep_commit import UpkeepCommitter
from frazil.clients.iceberg.read.table_metadata import facts_from_document
from frazil.clients.java_errors import translated
from frazil.hooks import Failpoint, failpoint
from frazil.model.table_facts import UPKEEP_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from frazil.clients.iceberg.gateway import IcebergGateway, JavaObject
    from frazil.clients.iceberg.read.table_metadata import SnapshotFacts
    from frazil.model.table_name import TableName

MAIN_BRANCH = "main"
# What Iceberg writes by default; half of it is not worth a rewrite.
_MANIFEST_BYTES = 8 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedRef:
    """A tag or a branch other than the main one."""

    name: str
    snapshot_id: int
    is_branch: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataFacts:
    """What one version of the metadata lists; ``files`` are those that the metadata itself names.

    These are the version's own file, earlier ones of its log, and statistics.
    """

    uuid: str
    location: str
    properties: Mapping[str, str]
    head: int | None
    snapshots: tuple[SnapshotFacts, ...]
    manifest_lists: tuple[str, ...]
    refs: tuple[NamedRef, ...]
    statistics: int
    files: tuple[str, ...]
    bytes: int
    spec_id: int


@dataclass(frozen=True, slots=True)
class ManifestCounts:
    """The manifests of the head; ``small`` are those that a rewrite would put together."""

    count: int
    small: int
    bytes: int


class TableUpkeep:
    """Upkeep of one table through Iceberg; lives on the driver."""

    def __init__(self, gateway: IcebergGateway, table: JavaObject, name: TableName) -> None:
        self._gateway = gateway
        self._table = table
        self._name = name
        self.commits = UpkeepCommitter(gateway, table, str(name))

    def load_metadata(self) -> MetadataFacts:
        """The newest version, in one gateway call."""
        with translated(str(self._name), "reading the table's metadata"):
            metadata = self._table.operations().refresh()
            text = str(self._gateway.metadata_parser.toJson(metadata))
            location = str(metadata.metadataFileLocation())
        return _metadata_facts(json.loads(text), location, len(text))

    def load_manifests(self, spec_id: int) -> ManifestCounts:
        """The manifests of the head, from its manifest list."""
        with translated(str(self._name), "reading the manifest list"):
            head = self._table.currentSnapshot()
            found = [] if head is None else list(head.allManifests(self._table.io()))
            sizes = [(int(each.length()), int(each.partitionSpecId())) for each in found]
        small = [size for size, spec in sizes if spec == spec_id and size < _MANIFEST_BYTES // 2]
        return ManifestCounts(len(sizes), len(small), sum(size for size, _ in sizes))

    def expire(self, snapshots: Sequence[int]) -> int:
        """Expire exactly these snapshots; returns how many files were removed.

        Iceberg refuses one that a tag or a branch names. The metadata is committed first: a process
        that dies before the files are removed leaves orphans.
        """
        with translated(str(self._name), "expiring snapshots"):
            gathered, taker = self._gateway.collector()
            # Nothing goes by age: what is old and needed is known to the policy alone.
            update = self._table.expireSnapshots().expireOlderThan(0).deleteWith(taker)
            for each in snapshots:
                update.expireSnapshotId(each)
            update.commit()
            failpoint(Failpoint.MAINTAIN_COMMITTED)
            count = int(gathered.size())
            if count:
                self._gateway.remove_files(self._table.io(), gathered)
        return count

    def rewrite_manifests(self) -> int:
        """Write the manifests of the current partitioning again, as a replace snapshot."""
        with translated(str(self._name), "rewriting manifests"):
            return self._gateway.rewrite_manifests(self._table, {UPKEEP_KEY: "manifests"})

    def note(self, properties: Mapping[str, str]) -> None:
        """Set table properties; no snapshot is made."""
        with translated(str(self._name), "setting table properties"):
            update = self._table.updateProperties()
            for key, value in properties.items():
                update.set(key, value)
            update.commit()

    def find_unnamed(self, names: Sequence[str]) -> frozenset[str]:
        """Those of the file names that no manifest of any listed snapshot names.

        Names without their folders are compared, because catalogs and engines spell one location
        in several ways; a name that occurs anywhere counts as named.
        """
        session, table = self._gateway.session, self._name.quoted
        with translated(str(self._name), "reading what snapshots name"):
            files = session.read.format("iceberg").load(f"{table}.all_files")
            manifests = session.read.format("iceberg").load(f"{table}.all_manifests")
            named = files.selectExpr("file_path as location").union(
                manifests.selectExpr("path as location")
            )
            named = named.selectExpr("substring_index(location, '/', -1) as name")
            wanted = session.createDataFrame(pa.table({"name": pa.array(names, pa.string())}))
            found = wanted.join(named, "name", "left_anti").toArrow()
        return frozenset(found.column("name").to_pylist())


def _metadata_facts(document: Mapping[str, Any], location: str, size: int) -> MetadataFacts:
    head = document.get("current-snapshot-id")
    statistics = [str(each["statistics-path"]) for each in document.get("statistics", ())]
    partitions = document.get("partition-statistics", ())
    statistics += [str(each["statistics-path"]) for each in partitions]
    earlier = [str(each["metadata-file"]) for each in document.get("metadata-log", ())]
    snapshots = document.get("snapshots", ())
    return MetadataFacts(
        uuid=str(document["table-uuid"]),
        location=str(document["location"]),
        properties=dict(document.get("properties", {})),
        # Iceberg writes -1 for a table without snapshots.
        head=None if head in {None, -1} else int(head),
        snapshots=tuple(facts_from_document(each) for each in snapshots),
        # Tables of format version 1 may list manifests instead.
        manifest_lists=tuple(
            str(each["manifest-list"]) for each in snapshots if "manifest-list" in each
        ),
        refs=tuple(
            NamedRef(
                name=name,
                snapshot_id=int(ref["snapshot-id"]),
                is_branch=ref["type"].lower() == "branch",
            )
            for name, ref in document.get("refs", {}).items()
            if name != MAIN_BRANCH
        ),
        statistics=len(statistics),
        files=(location, *earlier, *statistics),
        bytes=size,
        spec_id=int(document.get("default-spec-id", 0)),
    )
