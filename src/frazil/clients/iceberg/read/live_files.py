"""Loads the data files of a snapshot and their deletes from the manifests."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.clients.java_errors import translated
from frazil.model.key_index import DeleteKind, DeletePointer, IndexedFile

if TYPE_CHECKING:
    from frazil.clients.iceberg.gateway import IcebergGateway, JavaObject


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFile:
    """A data file of a snapshot; ``partition`` is JSON as in a descriptor."""

    location: str
    file_format: str
    rows: int
    size: int
    spec_id: int
    partition: str
    deletes: tuple[DeletePointer, ...] = ()
    # Equality deletes have no row positions.
    equality_deletes: int = 0
    # The data sequence number.
    sequence: int = 0
    # The identity that its first row has unless the file says otherwise; from version 3 on.
    first_row_id: int | None = None

    @property
    def descriptor(self) -> str:
        """The file as a commit names it that removes it."""
        members = {
            "spec-id": self.spec_id,
            "content": "DATA",
            "file-path": self.location,
            "file-format": self.file_format,
            "partition": json.loads(self.partition),
            "file-size-in-bytes": self.size,
            "record-count": self.rows,
        }
        return json.dumps(members, ensure_ascii=False, separators=(",", ":"))

    def indexed(self, ordinal: int) -> IndexedFile:
        """The file as the key index has it."""
        return IndexedFile(
            ordinal=ordinal,
            location=self.location,
            rows=self.rows,
            size=self.size,
            spec_id=self.spec_id,
            partition=self.partition,
            deletes=self.deletes,
        )


class LiveFiles:
    """Loads the files of one table; all of them in one gateway call."""

    def __init__(self, gateway: IcebergGateway, table: JavaObject, name: str) -> None:
        self._gateway = gateway
        self._table = table
        self._name = name
        self._partition_fields: dict[int, tuple[int, ...]] = {}

    def load(self, snapshot_id: int) -> tuple[LiveFile, ...]:
        """Every data file of the snapshot, in the order of the manifests."""
        with translated(self._name, "listing the table's files"):
            specs = self._table.specs()
            tasks = self._table.newScan().useSnapshot(snapshot_id).planFiles()
            try:
                found = self._gateway.gather(tasks)
            finally:
                tasks.close()
            document = json.loads(self._gateway.describe_tasks(found, specs))
            sequences = self._gateway.data_sequences(found)
            deletes = [self._described(each, specs) for each in document.get("delete-files", ())]
            described = document.get("file-scan-tasks", ())
            return tuple(
                self._file(
                    self._described(each["data-file"], specs), _deletes_of(each, deletes), sequence
                )
                for each, sequence in zip(described, sequences, strict=True)
            )

    def _file(
        self, file: dict[str, object], deletes: list[dict[str, object]], sequence: int
    ) -> LiveFile:
        found = [_pointer(each, str(file["file-path"])) for each in deletes]
        return LiveFile(
            location=str(file["file-path"]),
            file_format=str(file["file-format"]).upper(),
            rows=_number(file, "record-count"),
            size=_number(file, "file-size-in-bytes"),
            spec_id=_number(file, "spec-id"),
            partition=str(file["partition"]),
            deletes=tuple(each for each in found if each is not None),
            equality_deletes=sum(each is None for each in found),
            first_row_id=_number(file, "first-row-id") if "first-row-id" in file else None,
            sequence=sequence,
        )

    def _described(self, file: dict[str, object], specs: JavaObject) -> dict[str, object]:
        """The same with its partition by field id, the form that every Iceberg version reads."""
        spec_id = _number(file, "spec-id")
        if spec_id not in self._partition_fields:
            text = self._gateway.spec_parser.toJson(specs.get(spec_id))
            fields = json.loads(text)["fields"]
            self._partition_fields[spec_id] = tuple(int(each["field-id"]) for each in fields)
        partition = _partition(file.get("partition"), self._partition_fields[spec_id])
        return {**file, "partition": partition}


def _deletes_of(
    task: dict[str, list[int]], deletes: list[dict[str, object]]
) -> list[dict[str, object]]:
    return [deletes[number] for number in task.get("delete-file-references", ())]


def _pointer(described: dict[str, object], data_file: str) -> DeletePointer | None:
    """The pointer to the deleted rows of a data file; None for equality deletes."""
    if str(described["content"]).upper().replace("-", "_") == "EQUALITY_DELETES":
        return None
    is_vector = str(described["file-format"]).upper() == "PUFFIN"
    referenced = described.get("referenced-data-file")
    return DeletePointer(
        kind=DeleteKind.VECTOR if is_vector else DeleteKind.POSITIONS,
        location=str(described["file-path"]),
        file_size=_number(described, "file-size-in-bytes"),
        rows=_number(described, "record-count"),
        spec_id=_number(described, "spec-id"),
        partition=str(described["partition"]),
        data_file=None if referenced is None else data_file,
        offset=_number(described, "content-offset") if is_vector else None,
        length=_number(described, "content-size-in-bytes") if is_vector else None,
    )


def _partition(values: object, ids: tuple[int, ...]) -> str:
    """The values by field id, without the nulls."""
    match values:
        case dict():
            by_id = {str(key): value for key, value in values.items()}
        case list():
            by_id = {str(key): value for key, value in zip(ids, values, strict=True)}
        case _:
            by_id = {}
    present = {key: value for key, value in by_id.items() if value is not None}
    return json.dumps(present, separators=(",", ":"), ensure_ascii=False)


def _number(described: dict[str, object], key: str) -> int:
    return int(str(described[key]))
