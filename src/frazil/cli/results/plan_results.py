"""What ``plan`` prints: lines of text, or one JSON document."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from frazil.cli.output import OutputFormat, write_json, write_line
from frazil.cli.results.upkeep_results import job_rows, jobs_json
from frazil.errors import FrazilError
from frazil.merge.planning.plan import describe, plan_document
from frazil.pipeline.planning.run_plan import (
    describe_source,
    describe_table,
    table_document,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from frazil.maintain.maintainer import UpkeepPlan
    from frazil.merge.planning.plan import MergePlan
    from frazil.pipeline.planning.run_plan import RunPlan, TableStep
    from frazil.telemetry.redaction import Redactor

MergeFound: TypeAlias = "MergePlan | FrazilError | None"

UP_TO_DATE = "nothing: the mirror is up to date"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One table: how it is captured, if it is, and its next merge.

    ``is_merged``: it has a changelog to merge; ``names`` are all names it is known by.
    """

    table: str
    mirror: str | None = None
    names: tuple[str, ...] = ()
    capture: TableStep | None = None
    is_merged: bool = True
    merge: MergeFound = None

    def with_merge(self, merges: Mapping[str, MergeFound]) -> Planned:
        """With what was found for its mirror."""
        if self.mirror is None or self.mirror not in merges:
            return replace(self, is_merged=False)
        return replace(self, merge=merges[self.mirror])


def print_plan(
    run: RunPlan | None,
    planned: Sequence[Planned],
    output: OutputFormat,
    redactor: Redactor,
    upkeep: Sequence[UpkeepPlan] = (),
) -> None:
    """All of it, without a secret; maintenance last, where a table needs any."""
    if output is OutputFormat.JSON:
        maintenance = [redactor.scrub(jobs_json(each)) for each in upkeep]
        write_json({**plan_json(run, planned, redactor), "maintenance": maintenance})
        return
    if run is not None:
        _print("source", describe_source(run), redactor)
    for each in planned:
        _print(each.table, _lines(each), redactor)
    for plan in upkeep:
        lines = [(kind, text) for _, kind, text in job_rows(plan)] if _needs_care(plan) else []
        if lines:
            _print(f"maintenance of {plan.table.name}", lines, redactor)


def _needs_care(plan: UpkeepPlan) -> bool:
    return bool(plan.jobs or plan.lagging)


def _print(title: str, lines: Sequence[tuple[str, str]], redactor: Redactor) -> None:
    write_line(title)
    width = max(len(label) for label, _ in lines)
    for label, text in lines:
        write_line(redactor.redact(f"  {label.ljust(width)}  {text}"))


def _lines(planned: Planned) -> list[tuple[str, str]]:
    lines = [] if planned.capture is None else describe_table(planned.capture)
    merge = planned.merge
    if isinstance(merge, FrazilError):
        return [*lines, ("problem", f"{merge.code}: {merge}")]
    if merge is not None:
        return [*lines, *describe(merge)]
    return [*lines, ("merge", UP_TO_DATE)] if planned.is_merged else lines


def plan_json(
    run: RunPlan | None, planned: Sequence[Planned], redactor: Redactor
) -> dict[str, object]:
    """The document."""
    source = None
    if run is not None:
        source = {
            **_scrubbed(run.preparation.document, redactor),
            "problem": _problem(run.preparation.problem, redactor),
        }
    return {"source": source, "tables": [_table_json(each, redactor) for each in planned]}


def _table_json(planned: Planned, redactor: Redactor) -> dict[str, object]:
    capture, merge = planned.capture, planned.merge
    problem = merge if isinstance(merge, FrazilError) else None
    if capture is not None:
        problem = capture.problem or problem
    plan = None
    if merge is not None and not isinstance(merge, FrazilError):
        plan = _scrubbed(plan_document(merge), redactor)
    return {
        "table": planned.table,
        "capture": None if capture is None else _scrubbed(table_document(capture), redactor),
        "plan": plan,
        "problem": _problem(problem, redactor),
    }


def _problem(error: FrazilError | None, redactor: Redactor) -> dict[str, str] | None:
    if error is None:
        return None
    return {"code": error.code, "message": redactor.redact(str(error))}


def _scrubbed(document: Mapping[str, object], redactor: Redactor) -> dict[str, object]:
    return {name: redactor.scrub(value) for name, value in document.items()}
