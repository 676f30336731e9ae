"""Schemas of changelogs in layouts that their source gives."""

from __future__ import annotations

from dataclasses import replace

import pytest

from frazil.errors import ConfigError, UnsupportedSchemaChangeError
from frazil.ingest.planning.changelog_plan import ChangelogNow, ChangelogPlan, plan_changelog
from frazil.model.policy import Evolution, OnDrop
from frazil.model.schema.table_layout import OwnColumn, TableLayout
from frazil.model.schema.types import Primitive
from frazil.model.source_table import SourceColumn, SourceTable


def column(number: int, name: str, *, required: bool = False) -> SourceColumn:
    return SourceColumn(number=number, name=name, type=Primitive.INT, required=required)


ID, NAME = column(1, "id"), column(2, "name")


def table(*columns: SourceColumn, key: tuple[int, ...] = (1,)) -> SourceTable:
    highest = max(each.number for each in columns)
    return SourceTable(
        name="shop.orders",
        identity="identity",
        shape="",
        columns=columns,
        key=key,
        highest_number=highest,
    )


def plan(
    source: SourceTable,
    current: ChangelogNow | None = None,
    *,
    prefix: str = "cdc_",
    restart: bool = False,
) -> ChangelogPlan:
    return plan_changelog(
        source,
        current,
        prefix=prefix,
        on_drop=OnDrop.KEEP,
        evolution=Evolution.PERMISSIVE,
        restart=restart,
    )


def after(before: ChangelogPlan) -> ChangelogNow:
    """The changelog as that plan leaves it."""
    highest = max(each.field.id for each in before.schema.columns())
    return ChangelogNow(
        schema=before.schema, last_column_id=highest, columns=before.columns, format_version=3
    )


RECORDS = TableLayout(columns=(), required=frozenset())
BUFFERED = TableLayout(
    columns=tuple(each for each in OwnColumn if each is not OwnColumn.PREVIOUS_KEY),
    required=frozenset({OwnColumn.OPERATION, OwnColumn.SEQUENCE_NUMBER, OwnColumn.LSN}),
)


def shown(found: ChangelogPlan) -> list[tuple[str, bool]]:
    return [(each.name, each.required) for each in found.schema.fields]


def test_a_table_of_records_has_the_sources_columns_alone_and_keeps_what_is_required() -> None:
    records = replace(table(column(1, "id", required=True), NAME, key=()), layout=RECORDS)
    first = plan(records)
    assert shown(first) == [("id", True), ("name", False)]
    # A name of ours means nothing there.
    odd = replace(records, columns=(*records.columns, column(3, "cdc_operation", required=True)))
    wider = plan(odd, after(first))
    # What is added cannot be required: older rows have no value.
    assert shown(wider) == [("id", True), ("name", False), ("cdc_operation", False)]
    assert wider.evolves
    relaxed = replace(records, columns=(ID, NAME))
    assert shown(plan(relaxed, after(first))) == [("id", False), ("name", False)]
    gone = replace(records, columns=(NAME,), highest_number=2)
    assert shown(plan(gone, after(first))) == [("id", False), ("name", False)]


def test_columns_of_changes_are_never_required() -> None:
    assert dict(shown(plan(table(column(1, "id", required=True)))))["id"] is False


def test_a_layout_may_leave_out_the_previous_key_and_still_watches_the_key() -> None:
    buffered = replace(table(ID, NAME), layout=BUFFERED)
    first = plan(buffered, prefix="_cdc_")
    assert shown(first) == [
        ("id", False), ("name", False), ("_cdc_operation", True), ("_cdc_sequence_number", True),
        ("_cdc_timestamp", False), ("_cdc_lsn", True), ("_cdc_unchanged", False),
    ]  # fmt: skip
    assert first.key_ids == {}
    same = plan(buffered, after(first), prefix="_cdc_")
    assert not same.evolves
    assert same.columns == first.columns
    other = replace(buffered, key=(2,))
    with pytest.raises(UnsupportedSchemaChangeError, match=r"key changes from \(id\) to \(name\)"):
        plan(other, after(first), prefix="_cdc_")
    again = plan(other, after(first), prefix="_cdc_", restart=True)
    assert shown(again) == shown(first)
    named = replace(buffered, columns=(ID, column(2, "_cdc_previous_key")))
    with pytest.raises(ConfigError, match="called like a column of the changelog"):
        plan(named, prefix="_cdc_")


def test_a_layout_that_the_table_does_not_have_is_refused() -> None:
    records = replace(table(ID, NAME, key=()), layout=RECORDS)
    changes = table(ID, NAME, key=())
    with pytest.raises(UnsupportedSchemaChangeError, match="lacks the column cdc_operation"):
        plan(changes, after(plan(records)))
    with pytest.raises(UnsupportedSchemaChangeError, match="cdc_operation is required"):
        plan(records, after(plan(changes)))
