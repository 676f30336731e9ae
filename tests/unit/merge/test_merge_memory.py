"""A merge whose tasks die for lack of memory is done by more and smaller ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from frazil.errors import WriteFailedError
from frazil.merge import merger
from frazil.merge.merger import Merger
from frazil.merge.planning.plan import plan_merge
from tests.unit.merge.planning.plan_facts import (
    SETTINGS,
    appends,
    changelog,
    merged_through,
    mirror,
)

if TYPE_CHECKING:
    from frazil.merge.planning.plan import MergePlan
    from frazil.merge.report import MergeCommit


@pytest.mark.fault("O3")
def test_a_merge_is_split_finer_after_a_task_died(monkeypatch: pytest.MonkeyPatch) -> None:
    facts, there = changelog(*appends(1, 2)), mirror(merged_through("1"))
    session: Any = FakeSession()
    none: Any = None
    tasks: list[int] = []
    monkeypatch.setattr(merger, "pinned_session", lambda _: session)
    monkeypatch.setattr(merger, "load_mirror_facts", lambda _: there)
    monkeypatch.setattr(merger, "load_changelog_facts", lambda _, after: facts)  # noqa: ARG005
    made = Merger(none, none, SETTINGS)
    made._open = lambda name: name  # type: ignore[method-assign,assignment,return-value]

    def apply(plan: MergePlan) -> MergeCommit:
        tasks.append(plan.tasks)
        error = WriteFailedError("a task failed")
        error.lacked_memory = len(tasks) <= 2
        raise error

    made.apply = apply  # type: ignore[method-assign]
    for _ in range(4):
        with pytest.raises(WriteFailedError):
            made.merge()
    planned = plan_merge(facts, there, SETTINGS)
    assert planned is not None
    assert tasks == [planned.tasks * times for times in (1, 2, 4, 4)]


class FakeSession:
    """As many cores as a plan asks for."""

    class sparkContext:  # noqa: N801 - Spark's name
        """Its context."""

        defaultParallelism = 1  # noqa: N815 - Spark's name
