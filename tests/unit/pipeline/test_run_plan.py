"""The plan of a run: what counts as work, and how it is described."""

from __future__ import annotations

from dataclasses import replace

import pytest

from frazil.errors import ConfigError, PositionLostError
from frazil.ledger.table_state import Copying, Paused, Removed, Streaming
from frazil.model.cause import Cause
from frazil.model.table_name import TableName
from frazil.pipeline.planning.run_plan import (
    UNKNOWN_CHANGES,
    ChangelogStep,
    MirrorStep,
    RunPlan,
    TableStep,
    describe_source,
    describe_table,
)
from frazil.sources.plan_facts import SourcePreparation, WaitingChanges

LIVE = TableStep(table="public.orders", state=Streaming(), recorded=Streaming())
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
    preparation=SourcePreparation(),
    tables=(LIVE,),
)


@pytest.mark.parametrize(
    ("step", "has_work"),
    [
        (LIVE, []),
        (replace(LIVE, waiting=WaitingChanges(has_any=True)), ["work"]),
        # What is unknown is not called work.
        (replace(LIVE, waiting=WaitingChanges(has_any=None)), []),
        (NEW, ["work"]),
        (replace(LIVE, state=Copying(), recorded=Copying()), ["work"]),
        (replace(LIVE, state=Removed("0/1")), ["work"]),
        (
            replace(
                LIVE,
                state=Paused("0/1", Cause(None, "it is")),
                recorded=Paused("0/1", Cause(None, "it is")),
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
    assert replace(QUIET, preparation=SourcePreparation(has_work=True)).has_work
    stuck = SourcePreparation(problem=PositionLostError("the slot is gone."))
    assert not replace(QUIET, preparation=stuck, tables=(NEW,)).has_work


def test_a_new_table_is_described_with_its_columns_and_its_key() -> None:
    assert describe_table(NEW) == [
        ("capture", "the table is copied, about 1,200 rows"),
        ("changelog", "public.orders_changelog is made: id int, note string"),
        ("mirror", "public.orders is made, by id"),
    ]


def test_a_table_that_is_captured_has_one_line() -> None:
    assert describe_table(LIVE) == [("capture", "nothing: no change waits")]
    assert describe_table(replace(LIVE, waiting=WaitingChanges(has_any=None))) == [
        ("capture", UNKNOWN_CHANGES)
    ]
    again = replace(LIVE, state=Copying(), recorded=Streaming())
    assert describe_table(again) == [("capture", "the table is copied again")]
    held = replace(LIVE, state=Paused("0/1A", Cause(None, "its changelog is gone")))
    assert describe_table(held) == [("capture", "paused at 0/1A: its changelog is gone")]


def test_the_source_is_described_with_what_is_run_there() -> None:
    first = SourcePreparation(lines=(("publication", "create publication a"),), has_work=True)
    assert describe_source(replace(QUIET, preparation=first)) == [
        ("publication", "create publication a")
    ]
    stuck = SourcePreparation(problem=PositionLostError("the slot is gone."))
    ((label, text),) = describe_source(replace(QUIET, preparation=stuck))
    assert (label, text.startswith(PositionLostError.code)) == ("problem", True)
