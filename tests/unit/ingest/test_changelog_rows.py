"""Rows of a source under the names of its changelog."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from frazil.changelog.layout import CdcColumns
from frazil.ingest.batch_run import spread
from frazil.ingest.changelog_rows import RowLayout, sequence_texts
from frazil.model.change import SequenceNumber
from frazil.model.schema.table_layout import OwnColumn, TableLayout
from frazil.sources.protocol import ChangeColumn, Split

# Most often the same few, as rows of one transaction have them.
UNSIGNED = st.integers(0, 2) | st.integers(0, 2**64 - 1)


@given(st.integers(0, 0xFFFF), st.lists(st.tuples(UNSIGNED, UNSIGNED), max_size=50))
def test_a_sequence_is_written_as_the_model_writes_it(
    epoch: int, pairs: list[tuple[int, int]]
) -> None:
    positions = np.array([pair[0] for pair in pairs], np.uint64)
    ordinals = np.array([pair[1] for pair in pairs], np.uint64)
    expected = [str(SequenceNumber(epoch, *pair)) for pair in pairs]
    assert sequence_texts(epoch, positions, ordinals).to_pylist() == expected


def rows() -> pa.RecordBatch:
    key = pa.struct([("7", pa.int64()), ("2", pa.string())])
    return pa.RecordBatch.from_pydict(
        {
            "7": pa.array([1, 2, 3], pa.int64()),
            "2": pa.array(["a", "b", None]),
            "9": pa.array([None, 2.5, 3.5]),
            ChangeColumn.OPERATION: pa.array(["INSERT", "INSERT", "DELETE"]),
            ChangeColumn.POSITION: pa.array([16, 16, 17], pa.uint64()),
            ChangeColumn.ORDINAL: pa.array([0, 1, 0], pa.uint64()),
            ChangeColumn.COMMITTED_AT: pa.array([1, 1, 2], pa.timestamp("us", "UTC")),
            ChangeColumn.ORIGIN: pa.array(["0/10", "0/10", "0/11"]),
            ChangeColumn.UNCHANGED: pa.array([[9], None, [2, 9]], pa.list_(pa.int32())),
            ChangeColumn.PREVIOUS_KEY: pa.array([None, {"7": 5, "2": "x"}, None], key),
        }
    )


LAYOUT = RowLayout(
    names={7: "id", 2: "name", 9: "price"},
    field_ids={7: 1, 2: 12, 9: 30},
    key={7: "id", 2: "name"},
    ours=CdcColumns("cdc_"),
    epoch=3,
    absent=("gone",),
)


def test_columns_get_the_names_they_have_in_the_changelog() -> None:
    laid = LAYOUT.lay_out(rows()).to_pydict()
    assert laid["id"] == [1, 2, 3]
    assert laid["name"] == ["a", "b", None]
    assert laid["price"] == [None, 2.5, 3.5]
    assert laid["gone"] == [None, None, None]
    assert laid["cdc_sequence_number"][2] == "0003/0000000000000011/0000000000000000"


def test_columns_that_were_not_sent_are_named_by_field_id() -> None:
    laid = LAYOUT.lay_out(rows()).to_pydict()
    assert laid["cdc_unchanged"] == [[30], None, [12, 30]]


def test_rows_that_were_sent_completely_name_no_column() -> None:
    complete = rows().slice(1, 1)
    assert LAYOUT.lay_out(complete).to_pydict()["cdc_unchanged"] == [None]


def test_a_slice_names_its_own_columns() -> None:
    last = rows().slice(2, 1)
    assert LAYOUT.lay_out(last).to_pydict()["cdc_unchanged"] == [[12, 30]]


def test_the_old_key_is_there_where_a_key_changed() -> None:
    laid = LAYOUT.lay_out(rows()).to_pydict()
    assert laid["cdc_previous_key"] == [None, {"id": 5, "name": "x"}, None]


def test_a_table_without_a_key_has_no_old_key() -> None:
    keyless = RowLayout(
        names=LAYOUT.names, field_ids=LAYOUT.field_ids, key={}, ours=LAYOUT.ours, epoch=0
    )
    assert "cdc_previous_key" not in keyless.lay_out(rows()).schema.names


def test_only_the_columns_of_a_layout_are_laid_out() -> None:
    records = replace(LAYOUT, ours=CdcColumns("cdc_", TableLayout(columns=())), key={})
    assert records.lay_out(rows()).schema.names == ["id", "name", "price", "gone"]
    few = TableLayout(columns=(OwnColumn.LSN, OwnColumn.OPERATION))
    names = replace(records, ours=CdcColumns("_x_", few)).lay_out(rows()).schema.names
    assert names[-2:] == ["_x_lsn", "_x_operation"]


@given(st.lists(st.integers(0, 64 * 2**20), min_size=1, max_size=40), st.integers(1, 8))
def test_splits_are_shared_by_few_tasks_and_fairly(weights: list[int], most: int) -> None:
    splits = [Split(number, weight) for number, weight in enumerate(weights)]
    tasks = spread(splits, most=most)
    assert 1 <= len(tasks) <= min(most, len(splits))
    assert {split.payload for task in tasks for split in task} == set(range(len(splits)))
    assert sum(map(len, tasks)) == len(splits)
    loads = [sum(split.weight for split in task) for task in tasks]
    assert max(loads) - min(loads) <= max(weights)


def test_a_few_bytes_are_one_task() -> None:
    assert len(spread([Split(number, 1000) for number in range(10)], most=8)) == 1
