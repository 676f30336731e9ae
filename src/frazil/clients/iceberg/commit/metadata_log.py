"""Decides from a table's history, with expired snapshots, whether a marker is of this history.

A property outlives a rollback and ``CREATE OR REPLACE``; the snapshot that wrote it does not.

Expiry removes a snapshot from the current metadata; earlier versions stay in the metadata log, as
many as ``write.metadata.previous-versions-max`` says. A snapshot's parent never changes, so an old
version is still right about it.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from frazil.clients.java_errors import java_classes, missing_file, translate, translated

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from frazil.clients.iceberg.gateway import IcebergGateway, JavaObject
    from frazil.clients.iceberg.read.table_metadata import SnapshotFacts, TableReader
    from frazil.model.marker import Marker

KEPT_VERSIONS_PROPERTY = "write.metadata.previous-versions-max"
# Iceberg's own default. An entry takes some 150 bytes of the metadata, and a mirror that is rarely
# merged is compacted and expired a few times between two merges.
KEPT_VERSIONS = 100
# Ten thousand snapshots with our summaries take some 20 MiB.
_MOST_BYTES = 512 * 2**20
# Jackson's exceptions, and what Iceberg throws for JSON that is not table metadata.
_MALFORMED = (".JsonParseException", ".JsonEOFException", ".IllegalArgumentException")


class MetadataLog:
    """One table's versions, from a given one back to the oldest that is kept."""

    def __init__(
        self, gateway: IcebergGateway, table: JavaObject, metadata: JavaObject, reader: TableReader
    ) -> None:
        self._gateway = gateway
        self._table = table
        self._reader = reader
        self._uuid = metadata.uuid()
        self._version: JavaObject | None = metadata
        self._earlier = reversed([str(each.file()) for each in metadata.previousFiles()])

    def iter_ancestry(self) -> Iterator[SnapshotFacts]:
        """The head and its ancestors, newest first, expired ones included while the log has them.

        An earlier version is read only when a parent is not in the later ones.
        """
        current = None if self._version is None else self._reader.head(self._version)
        while current is not None:
            yield current
            current = None if current.parent is None else self._find(current.parent)

    def _find(self, snapshot_id: int) -> SnapshotFacts | None:
        # A version that lists a snapshot is newer than its parent: later versions need not be
        # searched again.
        while self._version is not None:
            found = self._reader.snapshot(self._version, snapshot_id)
            if found is not None:
                return found
            self._version = self._read_earlier()
        return None

    def _read_earlier(self) -> JavaObject | None:
        """The previous version; None at the end of the log, or if its file is missing."""
        location = next(self._earlier, None)
        if location is None:
            return None
        doing = "reading an earlier version of the metadata"
        try:
            file = self._table.io().newInputFile(location)
            if not file.exists() or int(file.getLength()) > _MOST_BYTES:
                return None
            version = self._gateway.metadata_parser.read(file)
        except Py4JError as error:
            if missing_file(error) is not None or _is_malformed(error):
                return None
            raise translate(error, table=self._reader.name, doing=doing) from error
        with translated(self._reader.name, doing):
            return version if version.uuid() == self._uuid else None


def _is_malformed(error: Py4JError) -> bool:
    return any(name.endswith(_MALFORMED) for name in java_classes(error))


class Validity(Enum):
    """What the history says about a marker."""

    VALID = auto()
    ROLLED_BACK = auto()
    # The history ends before it proves either.
    UNPROVEN = auto()


def judge_marker(
    marker: Marker, ancestry: Iterable[SnapshotFacts], *, descendant: int | None = None
) -> Validity:
    """Valid if the commit that wrote the marker is the head or an ancestor of it.

    ``ancestry`` is newest first, read no further than needed, and follows the parent of each
    snapshot as far as it is known. ``descendant`` is a snapshot already known to descend from that
    commit. A history that ends before the commit proves nothing: sequence numbers also rise after
    a rollback.
    """
    written = marker.snapshot
    if written is None:
        return Validity.ROLLED_BACK
    oldest = None
    for snapshot in ancestry:
        if snapshot.id in (written.id, descendant):
            return Validity.VALID
        if snapshot.sequence < written.sequence:
            # The rest is older: the commit is not in this history.
            return Validity.ROLLED_BACK
        oldest = snapshot
    is_cut = oldest is not None and oldest.parent is not None
    return Validity.UNPROVEN if is_cut else Validity.ROLLED_BACK
