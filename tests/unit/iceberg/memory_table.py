"""A table of Iceberg in memory, as far as a commit asks it: versions, snapshots, files, catalog.

What Iceberg really does is proven with Iceberg; this lets a commit meet every answer there is.
"""

# ruff: noqa: N802 - Java's names

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from frazil.clients.iceberg.commit.strict_commit import Committer
from frazil.clients.iceberg.gateway import FileIntake
from frazil.clients.iceberg.read.table_metadata import TableReader
from tests.unit.iceberg.java_errors import thrown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ICEBERG = "org.apache.iceberg.exceptions."
CONFLICT = f"{ICEBERG}CommitFailedException"
INVALID = f"{ICEBERG}ValidationException"
NAME, UUID = "shop.orders", "6ba7b810"


@dataclass(frozen=True)
class Version:
    """``TableMetadata``: a table at one moment."""

    id: str = UUID
    texts: dict[str, str] = field(default_factory=dict)
    snapshots: tuple[dict[str, Any], ...] = ()
    head: int | None = None
    files: frozenset[str] = frozenset()
    deletes: frozenset[str] = frozenset()
    schema: int = 0
    last_column: int = 3
    statistics: tuple[tuple[Any, ...], ...] = ()
    earlier: tuple[Version, ...] = ()
    # No two snapshots have the same number, be they staged in vain.
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def uuid(self) -> str:
        return self.id

    def formatVersion(self) -> int:
        return 3

    def location(self) -> str:
        return "/lake/orders"

    def lastColumnId(self) -> int:
        return self.last_column

    def properties(self) -> dict[str, str]:
        return self.texts

    def currentSchemaId(self) -> int:
        return self.schema

    def snapshot(self, id_: int | None) -> SimpleNamespace | None:
        found = [each for each in self.snapshots if each["snapshot-id"] == id_]
        return SimpleNamespace(document=found[0], snapshotId=lambda: id_) if found else None

    def currentSnapshot(self) -> SimpleNamespace | None:
        return self.snapshot(self.head)

    def previousFiles(self) -> list[SimpleNamespace]:
        paths = [f"v{number}" for number in range(len(self.earlier))]
        return [SimpleNamespace(file=lambda path=path: path) for path in paths]

    def with_snapshot(self, summary: dict[str, str], parent: int | None) -> Version:
        """A snapshot of this summary becomes the head."""
        number = next(self.numbers)
        last = max((each["sequence-number"] for each in self.snapshots), default=0)
        document = {
            "snapshot-id": number,
            "sequence-number": last + 1,
            "timestamp-ms": 0,
            "summary": {"operation": "append", **summary},
        }
        if parent is not None:
            document["parent-snapshot-id"] = parent
        return replace(self, snapshots=(*self.snapshots, document), head=number)

    def foreign(self, **summary: str) -> Version:
        """A commit of another writer."""
        counts = {name.replace("_", "-"): each for name, each in summary.items()}
        return self.with_snapshot({"total-records": "1", **counts}, self.head)

    def rolled_back(self, to: int) -> Version:
        return replace(self, head=to)

    def expired(self) -> Version:
        """Only the head is kept, and earlier versions are gone as well."""
        kept = tuple(each for each in self.snapshots if each["snapshot-id"] == self.head)
        return replace(self, snapshots=kept, earlier=())


class Builder:
    """``TableMetadata.Builder``."""

    def __init__(self, version: Version) -> None:
        self._version = version

    def setProperties(self, texts: dict[str, str]) -> Builder:
        self._version = replace(self._version, texts={**self._version.texts, **texts})
        return self

    def setStatistics(self, entry: tuple[Any, ...]) -> Builder:
        self._version = replace(self._version, statistics=(*self._version.statistics, entry))
        return self

    def setCurrentSchema(self, schema: SimpleNamespace, last: int) -> Builder:
        number = self._version.schema + 1
        assert last >= max(self._version.last_column, schema.highestFieldId())
        self._version = replace(self._version, schema=number, last_column=last)
        return self

    def build(self) -> Version:
        return self._version


class Update:
    """``AppendFiles``, ``OverwriteFiles`` and ``RowDelta`` in one."""

    def __init__(self, staging: Staging, kind: str) -> None:
        self._staging = staging
        self._kind = kind
        self._files: dict[FileIntake, list[str]] = {each: [] for each in FileIntake}
        self._summary: dict[str, str] = {}
        self._empties = False
        self._must_exist: list[str] = []
        self._checks_removed = False

    def take(self, intake: FileIntake, files: Sequence[str]) -> None:
        assert {"append": "AppendFiles", "overwrite": "OverwriteFiles", "delta": "RowDelta"}[
            self._kind
        ] == intake.value[0]
        self._files[intake] += [json.loads(each)["path"] for each in files]

    def set(self, key: str, value: str) -> None:
        self._summary[key] = value

    def overwriteByRowFilter(self, everything: str) -> None:
        assert everything == "all"
        self._empties = True

    def validateFromSnapshot(self, head: int) -> None:
        assert head == self._staging.version.head

    def validateDeletedFiles(self) -> None:
        self._checks_removed = True

    def validateDataFilesExist(self, named: list[str]) -> None:
        self._must_exist = named

    def commit(self) -> None:
        version, files = self._staging.version, self._files
        gone = set(files[FileIntake.REMOVE_ROWS]) | (version.files if self._empties else set())
        gone_deletes = set(files[FileIntake.REMOVE_DELETES])
        lacking = (gone - version.files) | (gone_deletes - version.deletes)
        lacking &= set(files[FileIntake.REMOVE_ROWS]) | gone_deletes
        if (lacking and self._checks_removed) or set(self._must_exist) - version.files:
            raise thrown("java.lang.RuntimeException", INVALID)
        added = [
            path
            for intake in (FileIntake.APPEND, FileIntake.OVERWRITE, FileIntake.ADD_ROWS)
            for path in files[intake]
        ]
        live = (version.files - gone) | set(added)
        deletes = (version.deletes - gone_deletes) | set(files[FileIntake.ADD_DELETES])
        summary = {
            "added-data-files": len(added),
            "added-delete-files": len(files[FileIntake.ADD_DELETES]),
            "deleted-data-files": len(gone & version.files),
            "removed-delete-files": len(gone_deletes & version.deletes),
            "total-data-files": len(live),
            "total-records": len(live),
        }
        counts = {name: str(each) for name, each in summary.items()}
        staged = replace(version, files=frozenset(live), deletes=frozenset(deletes))
        self._staging.version = staged.with_snapshot({**counts, **self._summary}, version.head)


class Staging:
    """A transaction: a version of its own until it is handed to the catalog."""

    def __init__(self, version: Version) -> None:
        self.version = version

    def table(self) -> SimpleNamespace:
        return SimpleNamespace(operations=lambda: self, specs=dict)

    def current(self) -> Version:
        return self.version

    def commit(self, base: Version, new: Version) -> None:
        assert base is self.version
        self.version = new

    def newAppend(self) -> Update:
        return Update(self, "append")

    def newOverwrite(self) -> Update:
        return Update(self, "overwrite")

    def newRowDelta(self) -> Update:
        return Update(self, "delta")


class Gateway:
    """``IcebergGateway`` before these objects."""

    def __init__(self, table: MemoryTable) -> None:
        self.table_metadata = SimpleNamespace(buildFrom=Builder)
        self.expressions = SimpleNamespace(alwaysTrue=lambda: "all")
        self.schema_parser = SimpleNamespace(
            fromJson=lambda text: SimpleNamespace(
                highestFieldId=lambda: max(each["id"] for each in json.loads(text)["fields"])
            )
        )
        self.snapshot_parser = SimpleNamespace(
            toJson=lambda snapshot, _pretty: json.dumps(snapshot.document)
        )
        self.metadata_parser = SimpleNamespace(
            read=lambda file: table.version.earlier[int(file.path.removeprefix("v"))]
        )

    def statistics_file(self, *entry: object) -> tuple[object, ...]:
        return entry

    def apply_files(
        self, update: Update, intake: FileIntake, files: Sequence[str], _specs: object
    ) -> None:
        update.take(intake, files)

    def text_list(self, texts: Sequence[str]) -> list[str]:
        return list(texts)

    def to_json(self, value: object) -> Any:
        return json.loads(json.dumps(value))


class MemoryTable:
    """A table and its catalog; ``meanwhile`` happens before a commit arrives there.

    ``reply`` is called once it has landed, ``opening`` whenever the table is opened again.
    """

    def __init__(self, version: Version | None = None) -> None:
        self.version = version or Version()
        self.meanwhile: Callable[[], None] = lambda: None
        self.reply: Callable[[], None] = lambda: None
        self.opening: Callable[[], None] = lambda: None
        self.begins: Callable[[], None] = lambda: None
        self.makes: Callable[[Version], Staging] = Staging
        gateway: Any = Gateway(self)
        self.committer = Committer(
            gateway,
            self,
            name=NAME,
            uuid=UUID,
            reader=TableReader(gateway, NAME),
            reload=self._reload,
        )

    def newTransaction(self) -> Staging:
        self.begins()
        return self.makes(self.version)

    def operations(self) -> MemoryTable:
        return self

    def current(self) -> Version:
        return self.version

    def io(self) -> SimpleNamespace:
        def opened(path: str) -> SimpleNamespace:
            return SimpleNamespace(path=path, exists=lambda: True, getLength=lambda: 1)

        return SimpleNamespace(newInputFile=opened)

    def commit(self, base: Version, new: Version) -> None:
        self.meanwhile()
        if base is not self.version:
            raise thrown(CONFLICT)
        self.change(new)
        self.reply()

    def change(self, new: Version) -> None:
        """Another version becomes the current one."""
        self.version = replace(new, earlier=(*self.version.earlier, self.version))

    def _reload(self) -> MemoryTable:
        self.opening()
        return self
