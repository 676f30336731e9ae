"""The plan of a run: what counts as work, and how it is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from frazil.errors import ConfigError, PositionLostError
from frazil.ledger.table_state import Copying, Paused, Removed, Streaming
from frazil.model.cause import Cause
from frazil.model.table_name import TableName
from frazil.pipeline.planning.run_plan import (
    NOT_LOOKED_INTO,
    ChangelogStep,
    MirrorStep,
    RunPlan,
    TableStep,
    describe_source,
    describe_table,
)
from frazil.sources.postgres.preparation import SourcePreparation

LIVE = TableStep(table="public.orders", state=Streaming(), stood=Streaming())
NEW = TableStep(
    table="public.orders",
    state=Copying(),
    estimated_rows=1200,
    changelog=ChangelogStep(
        name=TableName("lake", ("public",), "orders_changelog"),
        is_new=True,
        columns=(("id", "int"), ("note", "string")),
    ),
    mirror=MirrorStep(name=TableName("lake", ("public",), "orders"), is_new=True, key=("id",)),
)
QUIET = RunPlan(
    slot="shop_frazil",
    publication="shop_frazil",
    preparation=SourcePreparation(),
    kept_bytes=0,
    tables=(LIVE,),
)


@pytest.mark.parametrize(
    ("step", "has_work"),
    [
        (LIVE, []),
        (replace(LIVE, has_changes=True), ["work"]),
        # What nobody could look into is not called work.
        (replace(LIVE, has_changes=None), []),
        (NEW, ["work"]),
        (replace(LIVE, state=Copying(), stood=Copying()), ["work"]),
        (replace(LIVE, state=Removed("0/1")), ["work"]),
        (
            replace(
                LIVE,
                state=Paused("0/1", Cause(None, "it is")),
                stood=Paused("0/1", Cause(None, "it is")),
            ),
            [],
        ),
        (replace(NEW, problem=ConfigError("no.")), []),
    ],
)
def test_what_a_run_has_to_do_for_a_table(step: TableStep, has_work: list[str]) -> None:
    assert step.has_work is bool(has_work)
    assert replace(QUIET, tables=(LIVE, step)).has_work is bool(has_work)


def test_work_at_the_source_is_work_and_a_run_that_cannot_begin_has_none() -> None:
    assert not QUIET.has_work
    assert replace(QUIET, preparation=SourcePreparation(creates_slot=True)).has_work
    assert replace(QUIET, preparation=SourcePreparation(statements=("create …",))).has_work
    stuck = SourcePreparation(problem=PositionLostError("the slot is gone."))
    assert not replace(QUIET, preparation=stuck, tables=(NEW,)).has_work


def test_a_new_table_is_told_with_its_columns_and_its_key() -> None:
    assert describe_table(NEW) == [
        ("capture", "the whole table is read, about 1,200 rows"),
        ("changelog", "public.orders_changelog is made: id int, note string"),
        ("mirror", "public.orders is made, by id"),
    ]


def test_a_table_that_is_captured_is_told_in_one_line() -> None:
    assert describe_table(LIVE) == [("capture", "nothing: no change waits")]
    assert describe_table(replace(LIVE, has_changes=None)) == [("capture", NOT_LOOKED_INTO)]
    again = replace(LIVE, state=Copying(), stood=Streaming())
    assert describe_table(again) == [("capture", "the whole table is read again")]
    held = replace(LIVE, state=Paused("0/1A", Cause(None, "its changelog is gone")))
    assert describe_table(held) == [("capture", "held at 0/1A: its changelog is gone")]


def test_the_source_is_told_with_what_is_run_there() -> None:
    assert describe_source(replace(QUIET, kept_bytes=3 * 2**20)) == [
        ("publication", "shop_frazil stays as it is"),
        ("slot", "shop_frazil is there and keeps 3.0 MiB of log unread"),
    ]
    first = SourcePreparation(statements=("create publication a", "and more"), creates_slot=True)
    assert describe_source(replace(QUIET, preparation=first)) == [
        ("publication", "create publication a"),
        ("publication", "and more"),
        ("slot", "shop_frazil is made"),
    ]
