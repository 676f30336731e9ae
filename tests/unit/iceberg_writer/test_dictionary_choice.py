from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from frazil.clients.iceberg.write.data_file import repeating_columns

ROWS = 100_000


def written(table: pa.Table) -> dict[str, bool]:
    """Which columns of a file have a dictionary when the choice is followed."""
    file = io.BytesIO()
    pq.write_table(table, file, use_dictionary=repeating_columns(table))
    group = pq.read_metadata(file).row_group(0)
    columns = [group.column(at) for at in range(group.num_columns)]
    return {each.path_in_schema: each.has_dictionary_page for each in columns}


def test_columns_of_different_values_have_no_dictionary() -> None:
    numbers = range(ROWS)
    table = pa.table(
        {
            "id": numbers,
            "text": [f"{number:032x}" for number in numbers],
            "uuid": pa.array([b"%016d" % number for number in numbers], pa.uuid()),
            "thrice": np.random.default_rng(7).integers(0, ROWS // 3, ROWS),
            "often": np.random.default_rng(8).integers(0, ROWS // 12, ROWS),
            "few": [f"region {number % 50}" for number in numbers],
            "sorted": [number // 20 for number in numbers],
            "absent": pa.nulls(ROWS, pa.string()),
        }
    )
    chosen = {name for name, has_dictionary in written(table).items() if has_dictionary}
    assert chosen == {"often", "few", "sorted", "absent"}


def test_nested_columns_keep_theirs_whatever_their_names() -> None:
    table = pa.table(
        {
            "list": pa.array([[1, 2]] * 10),
            "struct": pa.array([{"a": 1, "b": {"c": "x"}}] * 10),
            "map": pa.array([[("k", 1)]] * 10, pa.map_(pa.string(), pa.int64())),
        }
    )
    assert all(written(table).values())
    assert len(written(table)) == 5


def test_one_row_and_none_can_be_written() -> None:
    table = pa.table({"id": [1], "name": ["a"]})
    assert repeating_columns(table.slice(0, 0)) == ["id", "name"]
    assert pq.read_table(_file(table)).to_pylist() == [{"id": 1, "name": "a"}]


def _file(table: pa.Table) -> io.BytesIO:
    file = io.BytesIO()
    pq.write_table(table, file, use_dictionary=repeating_columns(table))
    return file
