"""Position delete files: which rows of data files are gone, as format version 2 stores it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from frazil.codec.deletes.deletion_vector import DeletionVector, FilePartition, describe_delete_file
from frazil.codec.malformed import MalformedFileError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PATH_FIELD = 2147483546
_POSITION_FIELD = 2147483545
_FIELD_ID = b"PARQUET:field_id"
_SCHEMA = pa.schema(
    [
        # A dictionary in memory only; in the file it is plain text.
        pa.field(
            "file_path",
            pa.dictionary(pa.int32(), pa.string()),
            nullable=False,
            metadata={_FIELD_ID: str(_PATH_FIELD).encode()},
        ),
        pa.field(
            "pos",
            pa.int64(),
            nullable=False,
            metadata={_FIELD_ID: str(_POSITION_FIELD).encode()},
        ),
    ]
)
# A gigabyte of positions; rows that repeat cost a file nothing, so its size sets no bound.
MOST_ROWS = 1 << 27
# Names and paths in a file's own metadata; Arrow's default is 100 MB of them.
_LONGEST_METADATA = 1 << 22


def encode_position_deletes(data_file: str, vector: DeletionVector) -> bytes:
    """A Parquet file that deletes these rows of one data file, sorted as readers expect."""
    positions = vector.positions()
    if not len(positions):
        raise ValueError("a position delete file deletes at least one row")
    paths = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(len(positions), np.int32)), pa.array([data_file], pa.string())
    )
    table = pa.Table.from_arrays([paths, pa.array(positions.astype(np.int64))], schema=_SCHEMA)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        _SCHEMA,
        compression="zstd",
        use_dictionary=["file_path"],
        # Neighbours differ by little: a fraction of the eight bytes each, and every reader has it.
        column_encoding={"pos": "DELTA_BINARY_PACKED"},
        # Arrow's own copy of the schema would announce a dictionary to readers.
        store_schema=False,
        write_page_checksum=True,
    ) as writer:
        writer.write_table(table)
        # As Iceberg for Java marks its own.
        writer.add_key_value_metadata({"delete-type": "position"})
    return bytes(sink.getvalue())


def position_delete_descriptor(
    location: str,
    data: bytes,
    *,
    data_file: str,
    vector: DeletionVector,
    placement: FilePartition,
) -> str:
    """The file made above as a line of JSON, with the metrics that Iceberg's own writer records.

    The bounds of the path are not truncated, because equal ones show older readers that the file
    concerns one data file only; newer ones read that from the reference.
    """
    parquet = pq.read_metadata(pa.BufferReader(data))
    groups = [parquet.row_group(number) for number in range(parquet.num_row_groups)]
    fields = [_PATH_FIELD, _POSITION_FIELD]
    sizes = [
        sum(group.column(column).total_compressed_size for group in groups) for column in range(2)
    ]
    path = data_file.encode().hex().upper()
    lower = vector.smallest.to_bytes(8, "little").hex().upper()
    upper = vector.largest.to_bytes(8, "little").hex().upper()
    return describe_delete_file(
        location,
        file_format="PARQUET",
        file_size=len(data),
        record_count=vector.cardinality,
        data_file=data_file,
        placement=placement,
        more={
            "column-sizes": {"keys": fields, "values": sizes},
            "lower-bounds": {"keys": fields, "values": [path, lower]},
            "upper-bounds": {"keys": fields, "values": [path, upper]},
            "split-offsets": [group.column(0).dictionary_page_offset for group in groups],
        },
    )


def decode_position_deletes(
    data: bytes, *, record_count: int | None = None, most_rows: int = MOST_ROWS
) -> dict[str, DeletionVector]:
    """The deleted rows of every data file that a position delete file names.

    Columns are found by field id, as Iceberg does; rows may come unsorted and more than once. The
    record count of the manifest must be given where it is known: Parquet checks its pages but not
    what it says of them.
    """
    try:
        return _by_file(*_read_columns(data, record_count, most_rows))
    # Arrow's own errors, and plain ones where its bindings meet unusual names.
    except (pa.ArrowException, KeyError, OSError, ValueError) as error:
        what = "expected a file of position deletes, found a damaged one"
        raise MalformedFileError(what, offset=0) from error


def _by_file(paths: pa.DictionaryArray, positions: NDArray[np.int64]) -> dict[str, DeletionVector]:
    # A dictionary may name a path twice, and both are the same file.
    unique = paths.dictionary.dictionary_encode()
    indices = unique.indices.to_numpy()[paths.indices.to_numpy()]
    # Sorted by file, so that each file is one slice and the cost does not grow with their number.
    order = np.argsort(indices, kind="stable")
    bounds = np.searchsorted(indices[order], np.arange(len(unique.dictionary) + 1))
    slices = zip(unique.dictionary.to_pylist(), bounds[:-1], bounds[1:], strict=True)
    ordered = positions[order]
    return {
        path: DeletionVector.from_positions(ordered[start:end])
        for path, start, end in slices
        if end > start
    }


def _read_columns(
    data: bytes, record_count: int | None, most_rows: int
) -> tuple[pa.DictionaryArray, NDArray[np.int64]]:
    metadata, names = _read_schema(data)
    rows = metadata.num_rows
    if not 0 <= rows <= most_rows:
        what = f"expected at most {most_rows} rows, found {rows}"
        raise MalformedFileError(what, offset=len(data))
    if record_count not in {None, rows}:
        what = f"expected {record_count} rows, found {rows}"
        raise MalformedFileError(what, offset=len(data))
    # Kept as a dictionary: a long path a million times over would be a bomb.
    file = pq.ParquetFile(
        pa.BufferReader(data),
        metadata=metadata,
        read_dictionary=[names[0]],
        page_checksum_verification=True,
    )
    table = file.read(columns=names)
    table.validate(full=True)
    paths, positions = (table.column(name) for name in names)
    nulls = paths.null_count or positions.null_count
    typed = _is_text(paths.type) and positions.type == pa.int64()
    if not typed or nulls or table.num_rows != rows:
        what = "expected text and integers in every row of position deletes"
        raise MalformedFileError(what, offset=len(data))
    return paths.unify_dictionaries().combine_chunks(), positions.to_numpy()


def _is_text(kind: pa.DataType) -> bool:
    """Text as a dictionary; writers that leave Arrow's schema in the file may use the large."""
    return pa.types.is_dictionary(kind) and kind.value_type in {pa.string(), pa.large_string()}


def _read_schema(data: bytes) -> tuple[pq.FileMetaData, list[str]]:
    """The file's own metadata, and the names it gives to path and position."""
    file = pq.ParquetFile(
        pa.BufferReader(data),
        thrift_string_size_limit=_LONGEST_METADATA,
        thrift_container_size_limit=_LONGEST_METADATA,
    )
    fields = list(file.schema_arrow)
    ids = [int((field.metadata or {}).get(_FIELD_ID, b"-1")) for field in fields]
    names = [field.name for field in fields]
    once = len(set(names)) == len(names)
    if not once or ids.count(_PATH_FIELD) != 1 or ids.count(_POSITION_FIELD) != 1:
        raise MalformedFileError("expected the columns of position deletes", offset=len(data))
    return file.metadata, [names[ids.index(_PATH_FIELD)], names[ids.index(_POSITION_FIELD)]]
