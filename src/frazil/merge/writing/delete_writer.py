"""Writes deleted row positions: old and new ones become one delete per data file."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from frazil.codec.deletes.deletion_vector import (
    DeletionVector,
    FilePartition,
    delete_file_descriptors,
    deletion_vector_puffin,
)
from frazil.codec.deletes.position_deletes import (
    encode_position_deletes,
    position_delete_descriptor,
)
from frazil.errors import StorageError
from frazil.mirror.deleted_rows import load_many
from frazil.model.key_index import DeleteKind, DeletePointer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from frazil.clients.iceberg.file_system import InputFiles, OutputFiles
    from frazil.model.key_index import IndexedFile

# The first version with deletion vectors; it refuses position deletes.
_VECTOR_FORMAT = 3
# Requests to a store are mostly waiting.
_THREADS = 16


@dataclass(frozen=True, slots=True)
class WrittenDeletes:
    """What a merge deletes, ready to be committed; ``files`` is the file table afterwards."""

    files: tuple[IndexedFile, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    removed_files: tuple[str, ...]
    touched: int
    bytes_written: int


@dataclass(frozen=True, slots=True)
class DeleteWriter:
    """Writes the deletes of one merge; ``name_file`` gives a fresh location by its ending."""

    format_version: int
    inputs: InputFiles
    outputs: OutputFiles
    name_file: Callable[[str], str]
    hidden_folder: str

    def write(
        self, files: Sequence[IndexedFile], positions: Mapping[int, DeletionVector]
    ) -> WrittenDeletes:
        """Delete these rows, by the ordinal of their file, on top of what is deleted already.

        A file without live rows is removed instead of getting a delete.
        """
        touched = [each for each in files if each.ordinal in positions]
        old = load_many(touched, self.inputs)
        vectors = {
            each.ordinal: vector.union(positions[each.ordinal])
            for each, vector in zip(touched, old, strict=True)
        }
        dead = {each.ordinal for each in touched if vectors[each.ordinal].cardinality >= each.rows}
        kept = [each for each in touched if each.ordinal not in dead]
        added = self._write(kept, vectors)
        pointers = {each.ordinal: pointer for each, (pointer, _) in zip(kept, added, strict=True)}
        after = tuple(
            replace(each, deletes=(pointers[each.ordinal],)) if each.ordinal in pointers else each
            for each in files
            if each.ordinal not in dead
        )
        return WrittenDeletes(
            files=after,
            added=tuple(descriptor for _, descriptor in added),
            removed=_no_longer_named(files, after),
            removed_files=tuple(data_descriptor(each) for each in touched if each.ordinal in dead),
            touched=len(touched),
            bytes_written=sum({p.location: p.file_size for p in pointers.values()}.values()),
        )

    def _write(
        self, files: Sequence[IndexedFile], vectors: Mapping[int, DeletionVector]
    ) -> list[tuple[DeletePointer, str]]:
        if not files:
            return []
        if self.format_version >= _VECTOR_FORMAT:
            return self._write_vectors(files, vectors)
        with ThreadPoolExecutor(_THREADS) as pool:
            return list(pool.map(lambda file: self._write_positions(file, vectors), files))

    def _write_vectors(
        self, files: Sequence[IndexedFile], vectors: Mapping[int, DeletionVector]
    ) -> list[tuple[DeletePointer, str]]:
        puffin = deletion_vector_puffin({each.location: vectors[each.ordinal] for each in files})
        location = self._write_puffin(puffin.data)
        placements = {each.location: _partition_of(each) for each in files}
        descriptors = delete_file_descriptors(location, puffin, placements)
        pointers = [
            DeletePointer(
                kind=DeleteKind.VECTOR,
                location=location,
                file_size=len(puffin.data),
                rows=vectors[file.ordinal].cardinality,
                spec_id=file.spec_id,
                partition=file.partition,
                data_file=file.location,
                offset=blob.offset,
                length=blob.length,
            )
            for file, blob in zip(files, puffin.blobs, strict=True)
        ]
        return list(zip(pointers, descriptors, strict=True))

    def _write_puffin(self, data: bytes) -> str:
        """In the folder of the data files, as Iceberg does, or else in a separate one.

        Some table buckets refuse Puffin files among data files, and take any file in a folder
        whose name begins with an underscore.
        """
        location = self.name_file("-deletes.puffin")
        try:
            self.outputs.write_file(location, data)
        except StorageError as refused:
            location = f"{self.hidden_folder}/{location.rpartition('/')[2]}"
            try:
                self.outputs.write_file(location, data)
            except StorageError:
                raise refused from None
        return location

    def _write_positions(
        self, file: IndexedFile, vectors: Mapping[int, DeletionVector]
    ) -> tuple[DeletePointer, str]:
        vector = vectors[file.ordinal]
        data = encode_position_deletes(file.location, vector)
        location = self.name_file("-deletes.parquet")
        self.outputs.write_file(location, data)
        descriptor = position_delete_descriptor(
            location, data, data_file=file.location, vector=vector, placement=_partition_of(file)
        )
        pointer = DeletePointer(
            kind=DeleteKind.POSITIONS,
            location=location,
            file_size=len(data),
            rows=vector.cardinality,
            spec_id=file.spec_id,
            partition=file.partition,
            data_file=file.location,
        )
        return pointer, descriptor


def _partition_of(file: IndexedFile) -> FilePartition:
    values = {int(key): value for key, value in json.loads(file.partition).items()}
    return FilePartition(file.spec_id, values)


def _no_longer_named(
    before: Sequence[IndexedFile], after: Sequence[IndexedFile]
) -> tuple[str, ...]:
    """The deletes that no live file needs any more; one may belong to several files."""
    named = {_identity(pointer) for file in after for pointer in file.deletes}
    gone = {
        _identity(pointer): pointer
        for file in before
        for pointer in file.deletes
        if _identity(pointer) not in named
    }
    return tuple(delete_descriptor(pointer) for pointer in gone.values())


def _identity(pointer: DeletePointer) -> tuple[str, int | None]:
    return (pointer.location, pointer.offset)


def delete_descriptor(pointer: DeletePointer) -> str:
    """A delete file as a commit names it that removes it."""
    is_vector = pointer.kind is DeleteKind.VECTOR
    members: dict[str, object] = {
        "spec-id": pointer.spec_id,
        "content": "POSITION_DELETES",
        "file-path": pointer.location,
        "file-format": "PUFFIN" if is_vector else "PARQUET",
        "partition": json.loads(pointer.partition),
        "file-size-in-bytes": pointer.file_size,
        "record-count": pointer.rows,
    }
    if is_vector:
        members |= {"content-offset": pointer.offset, "content-size-in-bytes": pointer.length}
    if pointer.data_file is not None:
        members["referenced-data-file"] = pointer.data_file
    return json.dumps(members, ensure_ascii=False, separators=(",", ":"))


def data_descriptor(file: IndexedFile) -> str:
    """A data file as a commit names it that removes it."""
    members = {
        "spec-id": file.spec_id,
        "content": "DATA",
        "file-path": file.location,
        "file-format": "PARQUET",
        "partition": json.loads(file.partition),
        "file-size-in-bytes": file.size,
        "record-count": file.rows,
    }
    return json.dumps(members, ensure_ascii=False, separators=(",", ":"))
