from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.codec.deletes.deletion_vector import DeletionVector, FilePartition
from frazil.codec.deletes.position_deletes import (
    decode_position_deletes,
    encode_position_deletes,
    position_delete_descriptor,
)
from frazil.codec.malformed import MalformedFileError
from tests.support.sampling import examples

PATH_ID, POSITION_ID = 2147483546, 2147483545
PATH = "s3://bucket/table/data/ünïcode, and longer than any bound that is cut.parquet"


def foreign_file(
    paths: Any,
    positions: Any,
    *,
    names: tuple[str, str] = ("file_path", "pos"),
    ids: tuple[int, int] = (PATH_ID, POSITION_ID),
    **options: Any,
) -> bytes:
    """Position deletes of some other writer."""
    columns = [pa.array(paths), pa.array(positions)]
    fields = [
        pa.field(name, column.type, metadata={"PARQUET:field_id": str(number)})
        for name, column, number in zip(names, columns, ids, strict=True)
    ]
    sink = pa.BufferOutputStream()
    table = pa.Table.from_arrays(columns, schema=pa.schema(fields))
    pq.write_table(table, sink, **options)
    return bytes(sink.getvalue())


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=100))
@examples(40)
def test_what_is_written_is_read_back(positions: list[int]) -> None:
    vector = DeletionVector.from_positions(positions)
    assert decode_position_deletes(encode_position_deletes(PATH, vector)) == {PATH: vector}


def test_a_million_positions_in_several_row_groups_are_read_back() -> None:
    vector = DeletionVector.from_positions(np.arange(0, 6_000_000, 5))
    data = encode_position_deletes(PATH, vector)
    assert pq.read_metadata(pa.BufferReader(data)).num_row_groups == 2
    assert len(data) < 100_000
    assert decode_position_deletes(data) == {PATH: vector}
    facts = json.loads(describe(data, vector))
    assert len(facts["split-offsets"]) == 2
    assert sum(facts["column-sizes"]["values"]) < len(data)


def describe(data: bytes, vector: DeletionVector) -> str:
    return position_delete_descriptor(
        "s3://b/d.parquet",
        data,
        data_file=PATH,
        vector=vector,
        placement=FilePartition(2, {1000: 9}),
    )


def test_the_file_is_what_the_format_requires() -> None:
    data = encode_position_deletes(PATH, DeletionVector.from_positions([7, 3, 70_000]))
    file = pq.ParquetFile(pa.BufferReader(data))
    path, position = file.schema_arrow
    assert (path.name, path.type, path.nullable) == ("file_path", pa.string(), False)
    assert (position.name, position.type, position.nullable) == ("pos", pa.int64(), False)
    assert path.metadata[b"PARQUET:field_id"] == str(PATH_ID).encode()
    assert position.metadata[b"PARQUET:field_id"] == str(POSITION_ID).encode()
    assert file.metadata.metadata == {b"delete-type": b"position"}
    assert file.read().to_pydict() == {"file_path": [PATH] * 3, "pos": [3, 7, 70_000]}


def test_the_descriptor_bounds_the_path_untruncated() -> None:
    vector = DeletionVector.from_positions([3, 2**40])
    data = encode_position_deletes(PATH, vector)
    facts = json.loads(describe(data, vector))
    sizes = facts.pop("column-sizes")
    assert sizes["keys"] == [PATH_ID, POSITION_ID]
    assert all(size > 0 for size in sizes["values"])
    path = PATH.encode().hex().upper()
    assert facts == {
        "spec-id": 2,
        "content": "POSITION_DELETES",
        "file-path": "s3://b/d.parquet",
        "file-format": "PARQUET",
        "partition": {"1000": 9},
        "file-size-in-bytes": len(data),
        "record-count": 2,
        "lower-bounds": {"keys": [PATH_ID, POSITION_ID], "values": [path, "0300000000000000"]},
        "upper-bounds": {"keys": [PATH_ID, POSITION_ID], "values": [path, "0000000000010000"]},
        "split-offsets": [4],
        "referenced-data-file": PATH,
    }


def test_deletes_of_many_files_are_distinguished_in_any_order() -> None:
    data = foreign_file(
        ["b", "a", "b", "a", "c", "b"], [5, 1, 2, 1, 0, 5], row_group_size=2, use_dictionary=False
    )
    assert {
        path: vector.positions().tolist() for path, vector in decode_position_deletes(data).items()
    } == {"a": [1], "b": [2, 5], "c": [0]}


def test_columns_are_found_by_field_id_whatever_their_names() -> None:
    data = foreign_file([5], ["x"], names=("p", "q"), ids=(POSITION_ID, PATH_ID))
    assert decode_position_deletes(data) == {"x": DeletionVector.from_positions([5])}


def test_large_text_is_text() -> None:
    data = foreign_file(pa.array(["x", "y", "x"], pa.large_string()), [5, 6, 7])
    assert decode_position_deletes(data) == {
        "x": DeletionVector.from_positions([5, 7]),
        "y": DeletionVector.from_positions([6]),
    }


def test_a_file_without_rows_deletes_nothing() -> None:
    empty = foreign_file(pa.array([], pa.string()), pa.array([], pa.int64()))
    assert decode_position_deletes(empty) == {}


def test_a_file_that_would_delete_nothing_is_not_written() -> None:
    with pytest.raises(ValueError, match="at least one row"):
        encode_position_deletes(PATH, DeletionVector())


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (foreign_file(["x"], [1], ids=(1, 2)), "the columns of position deletes"),
        (foreign_file(["x"], [1], ids=(PATH_ID, PATH_ID)), "the columns of position deletes"),
        (foreign_file(["x"], [1], names=("a", "a")), "the columns of position deletes"),
        (foreign_file(["x"], ["1"]), "text and integers"),
        (foreign_file([1], [1]), "text and integers"),
        (foreign_file(["x", None], [1, 2]), "text and integers"),
        (foreign_file(["x", "y"], [1, None]), "text and integers"),
        (foreign_file(["x"], [-1]), "found a damaged one"),
        (foreign_file(["x"], [2**63 - 1]), "found a damaged one"),
        (b"", "found a damaged one"),
        (b"PAR1" * 10, "found a damaged one"),
    ],
)
def test_a_file_of_another_shape_is_refused(data: bytes, expected: str) -> None:
    with pytest.raises(MalformedFileError, match=expected):
        decode_position_deletes(data)


def test_too_many_rows_are_refused_before_they_are_read() -> None:
    data = encode_position_deletes(PATH, DeletionVector.from_positions(np.arange(1001)))
    with pytest.raises(MalformedFileError, match="at most 1000 rows, found 1001"):
        decode_position_deletes(data, most_rows=1000)


def test_a_file_of_another_record_count_is_refused() -> None:
    data = encode_position_deletes(PATH, DeletionVector.from_positions([1, 5]))
    assert decode_position_deletes(data, record_count=2)[PATH].cardinality == 2
    with pytest.raises(MalformedFileError, match="expected 3 rows, found 2"):
        decode_position_deletes(data, record_count=3)


def test_a_file_cut_at_any_byte_is_refused() -> None:
    data = encode_position_deletes("f", DeletionVector.from_positions([1, 5]))
    for length in range(len(data)):
        with pytest.raises(MalformedFileError):
            decode_position_deletes(data[:length])


def test_a_flipped_bit_in_the_rows_is_noticed() -> None:
    vector = DeletionVector.from_positions(np.random.default_rng(7).integers(0, 10**6, 500))
    data = encode_position_deletes("f", vector)
    metadata = pq.read_metadata(pa.BufferReader(data))
    column = metadata.row_group(0).column(1)
    # The checksum covers what comes after the page's own header, of which most is the rows.
    ends = column.data_page_offset + column.total_compressed_size
    for bit in range(8 * (ends - 60), 8 * ends):
        bent = bytearray(data)
        bent[bit // 8] ^= 1 << bit % 8
        with pytest.raises(MalformedFileError):
            decode_position_deletes(bytes(bent))
