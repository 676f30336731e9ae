"""What the next run would do, table by table: values, and their text and JSON forms."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from frazil.ledger.table_state import Copying, Streaming
from frazil.sources.plan_facts import WaitingChanges

if TYPE_CHECKING:
    from collections.abc import Mapping

    from frazil.errors import FrazilError
    from frazil.ledger.table_state import State
    from frazil.model.table_name import TableName
    from frazil.pipeline.tables.captured_names import Named
    from frazil.sources.plan_facts import SourcePreparation

NOTHING_WAITS = WaitingChanges(has_any=False)
UNKNOWN_CHANGES = (
    "changes may wait: another process reads the source, or it keeps too much to check"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogStep:
    """A changelog as it is or will be; ``changes`` are what becomes of its columns.

    ``columns`` are the source's, with their types; our own come after them. It ``takes_over`` a
    table whose rows another writer left.
    """

    name: TableName
    is_new: bool
    columns: tuple[tuple[str, str], ...]
    changes: tuple[str, ...] = ()
    takes_over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorStep:
    """The mirror of a table, by its key."""

    name: TableName
    is_new: bool
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStep:
    """One table of the source: its next state, and what that takes.

    ``state`` is how the next run sees it, ``recorded`` what the ledger says, None for a table that
    is new to it. ``waiting`` is what waits for it at the source. ``no_mirror`` is why it gets none.
    """

    table: str
    state: State
    recorded: State | None = None
    estimated_rows: int | None = None
    waiting: WaitingChanges = NOTHING_WAITS
    changelog: ChangelogStep | None = None
    mirror: MirrorStep | None = None
    no_mirror: str | None = None
    problem: FrazilError | None = None

    @property
    def is_copied(self) -> bool:
        """Whether it is read from its first row."""
        return isinstance(self.state, Copying)

    @property
    def has_work(self) -> bool:
        """Whether a run has something to do for it; what cannot be done is none."""
        if self.problem is not None:
            return False
        follows = isinstance(self.state, Streaming) and bool(self.waiting.has_any)
        return self.is_copied or follows or self.state != self.recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """The source and its tables.

    ``names`` are the tables of the lake for each of them, or why it can have none.
    """

    preparation: SourcePreparation
    tables: tuple[TableStep, ...]
    names: Mapping[str, Named] = field(default_factory=dict)

    @property
    def has_work(self) -> bool:
        """Whether a run has something to do before it merges."""
        first = self.preparation
        if first.problem is not None:
            return False
        return first.has_work or any(each.has_work for each in self.tables)


def describe_source(plan: RunPlan) -> list[tuple[str, str]]:
    """What happens at the source first, as labels and texts."""
    first = plan.preparation
    if first.problem is not None:
        return [("problem", f"{first.problem.code}: {first.problem}")]
    return list(first.lines)


def describe_table(step: TableStep) -> list[tuple[str, str]]:
    """What happens to a table until its changelog has it, as labels and texts."""
    lines = [("capture", _capture(step))]
    if isinstance(step.state, Streaming):
        lines += step.waiting.lines
    if step.problem is not None:
        lines.append(("problem", f"{step.problem.code}: {step.problem}"))
    if step.changelog is not None:
        lines += _describe_changelog(step.changelog, is_copied=step.is_copied)
    if step.mirror is not None and step.mirror.is_new:
        key = ", ".join(step.mirror.key)
        lines.append(("mirror", f"{step.mirror.name} is made, by {key}"))
    elif step.no_mirror is not None:
        lines.append(("mirror", f"none: {step.no_mirror}"))
    return lines


def _capture(step: TableStep) -> str:
    if step.is_copied:
        again = "" if step.recorded is None else " again"
        about = "" if step.estimated_rows is None else f", about {step.estimated_rows:,} rows"
        return f"the table is copied{again}{about}"
    if not isinstance(step.state, Streaming):
        return str(step.state)
    waiting = step.waiting
    if waiting.text or waiting.has_any is None:
        return waiting.text or UNKNOWN_CHANGES
    return "changes wait at the source" if waiting.has_any else "nothing: no change waits"


def _describe_changelog(changelog: ChangelogStep, *, is_copied: bool) -> list[tuple[str, str]]:
    if changelog.is_new:
        columns = ", ".join(f"{name} {type_}" for name, type_ in changelog.columns)
        made = f"made: {columns}" if columns else "made with its first rows"
        return [("changelog", f"{changelog.name} is {made}")]
    lines = []
    if changelog.takes_over:
        taken = f"{changelog.name} is taken over: the rows of another writer stay"
        lines.append(("changelog", taken))
    when = "" if is_copied else ", with the next row"
    return [
        *lines,
        *(("changelog", f"{changelog.name}: {each}{when}") for each in changelog.changes),
    ]


def table_document(step: TableStep) -> dict[str, object]:
    """The same for programs; None is unknown."""
    return {
        "state": str(step.state),
        "copies": step.is_copied,
        "has_changes": step.waiting.has_any,
        "waiting": dict(step.waiting.document),
        "estimated_rows": step.estimated_rows,
        "changelog": None if step.changelog is None else _changelog_document(step.changelog),
        "mirror": None
        if step.mirror is None
        else {
            "name": str(step.mirror.name),
            "creates": step.mirror.is_new,
            "key": list(step.mirror.key),
        },
        "no_mirror": step.no_mirror,
    }


def _changelog_document(changelog: ChangelogStep) -> dict[str, object]:
    return {
        "name": str(changelog.name),
        "creates": changelog.is_new,
        "takes_over": changelog.takes_over,
        "columns": [{"name": name, "type": type_} for name, type_ in changelog.columns],
        "changes": list(changelog.changes),
    }
