"""A status that repaints itself on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from frazil.cli.terminal import STYLES, build_table
from frazil.cli.verbs.status.lines import (
    HEADER,
    PARTITION_HEADER,
    partition_rows,
    problem_lines,
    status_lines,
    table_row,
)
from frazil.model.printable import printable
from frazil.pipeline.status.values import Phase

if TYPE_CHECKING:
    from rich.console import RenderableType

    from frazil.pipeline.status.values import PipelineStatus, TableStatus

_TROUBLE: Final = "yellow"
_TO_THE_RIGHT: Final = frozenset({"LAG", "ROWS", "OFFSET", "NEWEST"})


class Screen:
    """The terminal's second screen, given back at the end of the block."""

    def __init__(self, console: Console | None = None) -> None:
        self._live = Live(
            console=console or Console(), screen=True, auto_refresh=False, transient=True
        )

    def __enter__(self) -> Screen:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, status: PipelineStatus | None, note: str | None) -> None:
        """Paint; ``note`` is why the status is an old one."""
        parts: list[RenderableType] = []
        if note is not None:
            parts += [Text(printable(note), style=_TROUBLE), Text()]
        if status is not None:
            parts += paint(status)
        parts += [Text(), Text("Ctrl-C ends", style="dim")]
        self._live.update(Group(*parts), refresh=True)


def paint(status: PipelineStatus) -> list[RenderableType]:
    """The same lines as in a pipe, in colour and as wide as the terminal."""
    first, *others = map(printable, status_lines(status))
    lines = [Text(first, style="bold"), *(Text(line) for line in others), Text()]
    return [*lines, _table(status), *_partitions(status), *_problems(status)]


def _table(status: PipelineStatus) -> RenderableType:
    if not status.tables:
        return Text("no tables yet", style="dim")
    rows: list[list[str | Text]] = []
    for each in status.tables:
        name, phase, *rest = table_row(each, status)
        rows.append([name, Text(printable(phase), style=_style(each)), *rest])
    return build_table(rows, header=HEADER, right=_TO_THE_RIGHT)


def _partitions(status: PipelineStatus) -> list[RenderableType]:
    rows = partition_rows(status)
    if not rows:
        return []
    return [Text(), build_table(rows, header=PARTITION_HEADER, right=_TO_THE_RIGHT)]


def _problems(status: PipelineStatus) -> list[RenderableType]:
    lines = list(map(printable, problem_lines(status)))
    return [Text(), *(Text(line, style="" if line[:1] == " " else "bold") for line in lines)]


def _style(table: TableStatus) -> str:
    is_retried = table.trouble is not None and table.phase is not Phase.STOPPED
    return _TROUBLE if is_retried else STYLES.get(table.phase, "")
