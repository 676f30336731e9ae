from __future__ import annotations

import pickle
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.model.postgres.names import QualifiedName
from frazil.sources.postgres.copy.planning import (
    CopyColumn,
    CopySplit,
    CopyTable,
    PageRange,
    columns_query,
    copy_query,
    plan_ranges,
)
from frazil.sources.postgres.copy.reader import CopyReader
from frazil.sources.protocol import Split
from tests.support.postgres.access import Secret
from tests.support.postgres.columns import column

ORDERS = CopyTable(
    name="shop.orders",
    columns=(CopyColumn(1, "Id", column("int8")), CopyColumn(4, 'a "b"', column("text"))),
    key=(1,),
    row_filter=None,
    position=41,
    origin="0/2A",
)
LEAF = QualifiedName("shop", "orders.2024")


def split(first: int | None = None, past: int | None = None) -> CopySplit:
    return CopySplit("shop.orders", LEAF, first, past)


@given(pages=st.integers(0, 5000), target=st.integers(1, 700))
def test_every_page_is_in_one_range_also_one_that_comes_later(pages: int, target: int) -> None:
    ranges = plan_ranges(pages, target_pages=target)
    assert ranges[0].first is None
    assert ranges[-1].past is None
    for one, next_one in pairwise(ranges):
        assert one.past == next_one.first
        assert one.past is not None
    edges = [0, *(each.first for each in ranges[1:] if each.first is not None), pages]
    sizes = [past - first for first, past in pairwise(edges)]
    assert max(sizes) <= target
    assert len(ranges) == 1 or min(sizes) > 0


def test_an_empty_table_has_one_range_without_ends() -> None:
    assert plan_ranges(0, target_pages=100) == (PageRange(None, None),)


def test_a_split_without_ends_reads_all_pages_of_its_own_relation() -> None:
    assert copy_query(ORDERS, split()) == ('select "Id", "a ""b""" from only "shop"."orders.2024"')


@pytest.mark.parametrize(
    ("piece", "condition"),
    [
        (split(past=7), "ctid < '(7,0)'::pg_catalog.tid"),
        (split(first=7), "ctid >= '(7,0)'::pg_catalog.tid"),
        (
            split(first=7, past=9),
            "ctid >= '(7,0)'::pg_catalog.tid and ctid < '(9,0)'::pg_catalog.tid",
        ),
    ],
)
def test_a_split_reads_its_pages(piece: CopySplit, condition: str) -> None:
    assert copy_query(ORDERS, piece).endswith(f" where {condition}")


def test_a_row_filter_stays_complete_next_to_the_range() -> None:
    table = CopyTable(
        name=ORDERS.name,
        columns=ORDERS.columns,
        key=(),
        row_filter="(a = 1) or (b = 2)",
        position=1,
        origin="0/2",
    )
    assert copy_query(table, split(past=3)).endswith(
        "where ctid < '(3,0)'::pg_catalog.tid and ((a = 1) or (b = 2))"
    )


def test_a_column_is_printed_by_its_type_and_not_cast() -> None:
    assert copy_query(ORDERS, split(), printed={1}) == (
        """select case when "Id" is distinct from null then pg_catalog.format('%s', "Id") end, """
        '''"a ""b""" from only "shop"."orders.2024"'''
    )


def test_the_columns_are_loaded_without_rows() -> None:
    assert columns_query(ORDERS, split(first=7)) == (
        'select "Id", "a ""b""" from only "shop"."orders.2024" limit 0'
    )


def test_a_reader_travels_to_tasks_and_does_not_show_its_secret() -> None:
    reader = CopyReader(Secret("postgresql://me:hunter2@there/shop"), "00000003-1", (ORDERS,))
    assert pickle.loads(pickle.dumps(reader)) == reader
    assert pickle.loads(pickle.dumps(split(1, 2))) == split(1, 2)
    assert "hunter2" not in repr(reader)


def test_a_reader_refuses_splits_of_another_kind() -> None:
    reader = CopyReader(Secret("postgresql://there/shop"), "00000003-1", (ORDERS,))
    with pytest.raises(TypeError, match="str"):
        next(reader.read(Split("a segment", 1)))
