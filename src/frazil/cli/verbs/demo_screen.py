"""The tour on the screen: an updating table on a terminal, a line now and then elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from frazil.hooks import SystemClock
from frazil.model.humanize import duration
from frazil.model.printable import printable, printable_lines
from frazil.pipeline.status.values import Phase

if TYPE_CHECKING:
    from frazil.demo.tour.shop_workload import ShopCounts
    from frazil.demo.tour.watch import Step
    from frazil.hooks import Clock
    from frazil.pipeline.status.values import PipelineStatus, TableStatus

# In a log: often enough to see progress.
LINE_SECONDS = 5.0
# Wide enough for every step; a pipe has no width of its own.
_PLAIN_WIDTH = 110
_TITLE_WIDTH = 14
_PHASE_STYLES = {Phase.COPYING: "yellow", Phase.MERGING: "cyan", Phase.STOPPED: "bold red"}


def open_console() -> Console:
    """Standard output: with colours where it is a terminal, plain text elsewhere."""
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = _PLAIN_WIDTH
    return console


class DemoScreen:
    """Prints steps as they end, and the tables while they move."""

    def __init__(
        self,
        console: Console,
        *,
        is_live: bool | None = None,
        line_seconds: float = LINE_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        self._console = console
        self._line_seconds = line_seconds
        self._is_live = console.is_terminal if is_live is None else is_live
        self._clock = clock or SystemClock()
        self._live: Live | None = None
        self._said_at = self._clock.monotonic()

    def say(self, text: str = "", *, style: str = "") -> None:
        """A line, verbatim: no markup, no wrapping."""
        self._console.print(Text(printable_lines(text), style=style), soft_wrap=True)

    def show_step(self, step: Step) -> None:
        """A step that has ended."""
        line = Text.assemble(
            ("  ✓ ", "green"),
            (f"{step.title:<{_TITLE_WIDTH}}", "bold"),
            f" {step.detail} ",
            (f"{step.seconds:.1f} s", "dim"),
        )
        self._console.print(line, soft_wrap=True)

    def show(self, status: PipelineStatus, counts: ShopCounts) -> None:
        """The current status."""
        if not self._is_live:
            self._say_sometimes(status, counts)
            return
        if self._live is None:
            self._live = Live(console=self._console, transient=True, auto_refresh=False)
            self._live.start()
        self._live.update(_tables(status, counts), refresh=True)

    def settle(self, status: PipelineStatus, counts: ShopCounts) -> None:
        """The final status."""
        self.close()
        self._console.print(_tables(status, counts))

    def close(self) -> None:
        """Give the terminal back as it was; a second time does nothing."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def _say_sometimes(self, status: PipelineStatus, counts: ShopCounts) -> None:
        now = self._clock.monotonic()
        if now - self._said_at < self._line_seconds:
            return
        self._said_at = now
        captured = sum(sum(each.captured.values()) for each in status.tables)
        merged = sum(sum(each.merged.values()) for each in status.tables)
        self.say(
            f"  … {_doing(status)}: {counts.transactions:,} transactions in the shop, "
            f"{captured:,} rows captured, {merged:,} merged, {duration(status.lag_seconds)} behind"
        )


def _doing(status: PipelineStatus) -> str:
    phases = {each.phase for each in status.tables}
    if not phases:
        return "starting"
    return "copying" if Phase.COPYING in phases else "streaming"


def _tables(status: PipelineStatus, counts: ShopCounts) -> Group:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("    TABLE")
    table.add_column("PHASE", min_width=12)
    for name in ("CAPTURED", "INSERTED", "UPDATED", "DELETED", "BEHIND"):
        table.add_column(name, justify="right", min_width=8)
    for each in status.tables:
        table.add_row(*_row(each))
    done = Text(
        f"    {counts.transactions:,} transactions in the shop, {counts.rows:,} rows changed",
        style="dim",
    )
    return Group(Text(), table, done, Text())


def _row(each: TableStatus) -> tuple[Text | str, ...]:
    merged = each.merged
    return (
        Text(f"    {printable(each.table)}"),
        Text(_phase(each), style=_PHASE_STYLES.get(each.phase, "green")),
        f"{sum(each.captured.values()):,}",
        *(f"{merged.get(action, 0):,}" for action in ("insert", "update", "delete")),
        duration(each.lag_seconds),
    )


def _phase(each: TableStatus) -> str:
    if each.copy is None:
        return each.phase.value
    return f"{each.phase.value} {each.copy.fraction:.0%}"
