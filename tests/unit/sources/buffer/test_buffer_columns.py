"""Columns of events: what their types are, what their values become, and what is refused."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal as Number
from typing import Any

import pyarrow as pa
import pytest

from frazil.config import Config, TableSettings, table_settings
from frazil.errors import UnsupportedSchemaChangeError
from frazil.model.schema.types import Decimal, Primitive, Scalar
from frazil.sources.buffer.reading.event_queries import (
    ClaimedEvents,
    NamedColumns,
    has_others_query,
    rows_query,
)
from frazil.sources.buffer.reading.json_text import convert_text
from frazil.sources.buffer.reading.shape import (
    MOST_COLUMNS,
    EventColumn,
    HistoryColumns,
    SeenColumn,
    TableShape,
    decode_shape,
    encode_shape,
    grow_shape,
    parse_history,
    postgres_type,
)
from frazil.sources.buffer.relations import BufferRelations
from frazil.sources.buffer.settings import TableChoice

INTEGER = SeenColumn("id", 9, numbers=9, integers=9)
TRUTH = SeenColumn("done", 9, booleans=9)
TEXT = SeenColumn("name", 9)


def settings_of(**table: Any) -> TableSettings:
    config = Config.model_validate(
        {
            "pipeline": "tests",
            "catalog": {"name": "lake", "kind": "rest", "uri": "http://localhost:1"},
            "source": {"kind": "buffer", "dsn": "postgresql://localhost/none"},
            "tables": [{"mirror": "shop.orders", **table}],
        }
    )
    return table_settings(config, "shop.orders")


def types(shape: TableShape) -> dict[str, Scalar]:
    return {each.name: each.type for each in shape.columns}


def test_values_seen_become_booleans_longs_and_text() -> None:
    grown = grow_shape(
        TableShape(), HistoryColumns(), (INTEGER, TRUTH, TEXT), settings_of(), ["id"]
    )
    assert types(grown.shape) == {
        "id": Primitive.LONG,
        "done": Primitive.BOOLEAN,
        "name": Primitive.STRING,
    }
    assert [each.number for each in grown.shape.columns] == [1, 2, 3]
    assert grown.shape.key == (1,)
    assert decode_shape(encode_shape(grown.shape), table="t") == grown.shape


def test_declared_types_go_before_history_and_history_before_values() -> None:
    history = HistoryColumns(types={"id": Primitive.INT, "total": Decimal(10, 2)}, key=("id",))
    settings = settings_of(columns={"total": "decimal(12,2)", "name": "long"})
    grown = grow_shape(TableShape(), history, (TEXT,), settings)
    assert types(grown.shape) == {
        "id": Primitive.INT,
        "total": Decimal(12, 2),
        "name": Primitive.LONG,
    }
    assert grown.shape.key == (1,)


def test_a_type_widens_where_iceberg_does_and_never_flips() -> None:
    known = TableShape(
        columns=(
            EventColumn(1, "id", Primitive.INT),
            EventColumn(2, "total", Decimal(10, 2)),
            EventColumn(3, "name", Primitive.LONG),
        ),
        key=(1,),
    )
    wider: dict[str, Scalar] = {
        "id": Primitive.LONG,
        "total": Decimal(20, 2),
        "name": Primitive.STRING,
    }
    grown = grow_shape(known, HistoryColumns(types=wider, key=("name",)), (), settings_of())
    assert types(grown.shape) == {
        "id": Primitive.LONG,
        "total": Decimal(20, 2),
        "name": Primitive.LONG,
    }
    # A mirror has one key.
    assert grown.shape.key == (1,)


@pytest.mark.parametrize(
    ("seen", "type_"),
    [
        # One that is something else is no row, and decides nothing.
        (SeenColumn("c", 3, numbers=2, integers=2), Primitive.LONG),
        (SeenColumn("c", 1000, booleans=999), Primitive.BOOLEAN),
        # As many of one kind as of others: text has all of them.
        (SeenColumn("c", 2, numbers=1, integers=1), Primitive.STRING),
        (SeenColumn("c", 3, booleans=1, numbers=1, integers=1), Primitive.STRING),
        # A number that no integer of 64 bits is: every digit of all of them is kept.
        (SeenColumn("c", 1000, numbers=1000, integers=999), Primitive.STRING),
    ],
)
def test_most_values_decide_the_type_of_a_new_column(seen: SeenColumn, type_: Scalar) -> None:
    grown = grow_shape(TableShape(), HistoryColumns(), (seen,), settings_of())
    assert types(grown.shape) == {"c": type_}


def test_names_that_no_column_can_have_are_unusable() -> None:
    wrong = ("", "_cdc_lsn", "_file", "ID", "__frazil_x", "y" * 300)
    seen = (INTEGER, *(SeenColumn(each, 1) for each in wrong))
    grown = grow_shape(TableShape(), HistoryColumns(), seen, settings_of())
    assert grown.shape.names == ("id",)
    assert set(grown.unusable) == set(wrong)
    many = [SeenColumn(f"c{number}", 1) for number in range(MOST_COLUMNS + 1)]
    grown = grow_shape(TableShape(), HistoryColumns(), many, settings_of())
    assert (len(grown.shape.columns), len(grown.unusable)) == (MOST_COLUMNS, 1)


def test_a_history_of_another_form_says_nothing() -> None:
    text = json.dumps(
        [{"name": "id", "type": "bigint", "primary_key": True}, {"name": "n", "type": "money"}]
    )
    assert parse_history(text) == HistoryColumns(
        types={"id": Primitive.LONG, "n": Primitive.STRING}, key=("id",)
    )
    for other in ("{}", "[1]", '[{"name": "a"}]', "no json"):
        assert parse_history(other) == HistoryColumns()


@pytest.mark.parametrize(
    ("name", "type_"),
    [
        ("INTEGER", Primitive.INT),
        ("numeric(10, 2)", Decimal(10, 2)),
        ("numeric(3,5)", Decimal(5, 5)),
        ("numeric", Primitive.STRING),
        ("numeric(50,2)", Primitive.STRING),
        ("timestamp(3) with time zone", Primitive.TIMESTAMPTZ),
        ("character varying(20)", Primitive.STRING),
        ("integer[]", Primitive.STRING),
        ("pg_catalog.bool", Primitive.BOOLEAN),
    ],
)
def test_types_of_postgres_are_known_by_name(name: str, type_: Scalar) -> None:
    assert postgres_type(name) == type_


def test_a_shape_that_is_not_known_any_more_stops_its_table() -> None:
    for text in ("{}", '{"version":9,"columns":[],"key":[]}', "no json"):
        with pytest.raises(UnsupportedSchemaChangeError):
            decode_shape(text, table="shop.orders")


@pytest.mark.parametrize(
    ("type_", "fits", "misfits"),
    [
        (
            Primitive.LONG,
            {"1": 1, "-9223372036854775808": -(2**63)},
            ["9223372036854775808", "1.0", "0x1", " 1", "true"],
        ),
        (Primitive.INT, {"2147483647": 2**31 - 1}, ["2147483648"]),
        (Primitive.BOOLEAN, {"true": True, "false": False}, ["t", "1"]),
        (Primitive.DOUBLE, {"0.1": 0.1, "Infinity": float("inf")}, ["1" + "0" * 400, "x"]),
        (Decimal(5, 2), {"1.5": Number("1.50"), "-999.990": Number("-999.99")}, ["1.234", "1000"]),
        (Primitive.DATE, {"2026-02-28": date(2026, 2, 28)}, ["2026-02-30", "0000-01-01"]),
        (
            Primitive.TIMESTAMP,
            {"2026-01-02T03:04:05.5Z": datetime(2026, 1, 2, 3, 4, 5, 500_000)},  # noqa: DTZ001
            ["2026-01-02 03:04:05+02", "2026-01-02 03:04:05.0000001"],
        ),
        (
            Primitive.TIMESTAMPTZ,
            {
                "2026-01-02T03:04:05.000001000Z": datetime(2026, 1, 2, 3, 4, 5, 1, tzinfo=UTC),
                "2026-01-02 03:04:05+02": datetime(2026, 1, 2, 1, 4, 5, tzinfo=UTC),
            },
            ["2026-01-02 03:04:05", "2026-01-02T25:04:05Z", "infinity"],
        ),
        (Primitive.BINARY, {"\\x00ff": b"\0\xff"}, ["abc", "\\x0"]),
    ],
)
def test_text_is_converted_exactly_or_named_row_by_row(
    type_: Scalar, fits: dict[str, object], misfits: list[str]
) -> None:
    text = pa.array([*fits, None, *misfits], pa.string())
    values, wrong = convert_text(text, type_)
    assert values.to_pylist() == [*fits.values(), None, *([None] * len(misfits))]
    assert wrong is not None
    assert wrong.tolist() == [False] * (len(fits) + 1) + [True] * len(misfits)
    assert convert_text(pa.array(list(fits)), type_)[1] is None


def test_statements_quote_what_documents_bring() -> None:
    events = ClaimedEvents(
        relations=BufferRelations(schema='phil"otes'),
        pipeline="p",
        batch=1,
        first_id=1,
        last_id=9,
    )
    table = NamedColumns(
        source_id="it's",
        schema="s",
        name="t",
        columns=("a'b",),
        key=("a'b",),
        unusable=("un'usable",),
    )
    for query in (rows_query(events, [table]), has_others_query(events, [table])):
        assert "'a''b'" in query
        assert "'un''usable'" in query
        assert "'it''s'" in query
        assert '"phil""otes"' in query


def test_patterns_choose_tables() -> None:
    assert TableChoice().is_all
    choice = TableChoice(("shop.*", "other.a?c"), ("shop.tmp_*",))
    assert [
        choice.selects(each) for each in ("shop.a", "shop.tmp_a", "other.abc", "other.abbc", "x.y")
    ] == [True, False, True, False, False]
    assert TableChoice(("a+b.c",)).selects("a+b.c")
    assert not TableChoice(("a+b.c",)).selects("aab.c")
