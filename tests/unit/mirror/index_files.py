"""Files of an index and of the deletes it names, put into a folder for a test."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from frazil.codec.deletes.deletion_vector import DeletionVector, deletion_vector_puffin
from frazil.codec.deletes.position_deletes import encode_position_deletes
from frazil.codec.key_index.run import run_part, write_run_part
from frazil.model.key_index import DeleteKind, DeletePointer, IndexedFile, IndexRun

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from frazil.codec.key_index.entries import Entries
    from frazil.mirror.index.locating import TaskIndex


def put(folder: Path, data: bytes, ending: str = ".puffin") -> str:
    """A file under a fresh name, as every file of a table has one."""
    path = folder / f"{uuid.uuid4()}{ending}"
    path.write_bytes(data)
    return str(path)


def vectors(folder: Path, positions: Mapping[str, list[int]]) -> dict[str, DeletePointer]:
    """Deletion vectors of several data files in one Puffin file."""
    sets = {name: DeletionVector.from_positions(each) for name, each in positions.items()}
    file = deletion_vector_puffin(sets)
    location = put(folder, file.data)
    return {
        name: DeletePointer(
            kind=DeleteKind.VECTOR,
            location=location,
            file_size=len(file.data),
            rows=sets[name].cardinality,
            spec_id=0,
            partition="{}",
            data_file=name,
            offset=blob.offset,
            length=blob.length,
        )
        for name, blob in zip(positions, file.blobs, strict=True)
    }


def position_deletes(folder: Path, data_file: str, positions: list[int]) -> DeletePointer:
    """A position delete file of one data file."""
    data = encode_position_deletes(data_file, DeletionVector.from_positions(positions))
    return DeletePointer(
        kind=DeleteKind.POSITIONS,
        location=put(folder, data, ".parquet"),
        file_size=len(data),
        rows=len(set(positions)),
        spec_id=0,
        partition="{}",
        data_file=data_file,
    )


def data_file(ordinal: int, *deletes: DeletePointer, rows: int = 1000) -> IndexedFile:
    """A data file that is never opened."""
    return IndexedFile(
        ordinal=ordinal,
        location=f"data-{ordinal}.parquet",
        rows=rows,
        size=1,
        spec_id=0,
        partition="{}",
        deletes=deletes,
    )


def write_run(folder: Path, entries: Entries, *, bits: int = 0) -> IndexRun:
    """A run whose every bucket is a file of its own, or all in one file without bits."""
    sorted_ = entries.sorted()
    parts = []
    for bucket, at in sorted_.bucket_slices(bits):
        file = write_run_part({bucket: sorted_.take(at)}, bits=bits)
        parts.append(run_part(put(folder, file.data), file))
    return IndexRun(str(uuid.uuid4()), bits, tuple(parts))


def run_locations(index: TaskIndex) -> list[str]:
    """Where the parts of all runs lie."""
    return [part.location for run in index.runs for part in run.parts]
