"""A null list reaches a task as null, and is none on the way: Spark pays for it with every row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql import functions as sf

from frazil.merge.reading.changelog_reader import mark_null_lists, restore_null_lists

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

LISTS = {"texts": "array()", "counts": "map()", "matrix": "array()"}


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    return spark.sql(
        "select * from values "
        "(1, array('a', null), map('a', 1), array(array(1), null)), "
        "(2, null, null, null), "
        "(3, array(), map(), array()), "
        "(4, null, map('b', null), array(array())) "
        "as t(id, texts, counts, matrix)"
    )


def received(rows: DataFrame) -> dict[int, list[object]]:
    """The rows that a task receives, as text that separates null from empty."""

    def describe(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Put together, as a merge does with them.
        restored = pa.concat_batches([restore_null_lists(batch) for batch in batches])
        columns = {name: map(repr, restored.column(name).to_pylist()) for name in LISTS}
        described = {name: pa.array(list(texts)) for name, texts in columns.items()}
        assert set(restored.schema.names) == {"id", *LISTS}
        yield pa.RecordBatch.from_pydict({"id": restored.column("id"), **described})

    schema = "id int, " + ", ".join(f"{name} string" for name in LISTS)
    found = mark_null_lists(rows.coalesce(1), LISTS).mapInArrow(describe, schema).collect()
    return {row.id: [row[name] for name in LISTS] for row in found}


@pytest.mark.parametrize("batch_rows", [1, 10_000])
def test_lists_and_maps_arrive_as_they_were(
    rows: DataFrame, batch_rows: int, request: pytest.FixtureRequest
) -> None:
    conf, key = rows.sparkSession.conf, "spark.sql.execution.arrow.maxRecordsPerBatch"
    request.addfinalizer(lambda: conf.unset(key))
    conf.set(key, str(batch_rows))
    assert received(rows) == {
        1: ["['a', None]", "[('a', 1)]", "[[1], None]"],
        2: ["None", "None", "None"],
        3: ["[]", "[]", "[]"],
        4: ["None", "[('b', None)]", "[[]]"],
    }


def test_no_list_is_null_in_transit(rows: DataFrame) -> None:
    nulls = [sf.count_if(sf.col(name).isNull()).alias(name) for name in LISTS]
    assert mark_null_lists(rows, LISTS).agg(*nulls).first() == (0, 0, 0)


def test_rows_without_lists_are_sent_unchanged(rows: DataFrame) -> None:
    plain = rows.select("id")
    assert mark_null_lists(plain, {}) is plain
