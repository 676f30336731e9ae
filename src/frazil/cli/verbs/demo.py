"""The verb ``demo``: the tour on the screen, with a status page while it runs."""

from __future__ import annotations

import logging
import math
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from textwrap import wrap
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.status import Status
from rich.table import Table
from rich.text import Text

from frazil.cli.exit_codes import ExitCode
from frazil.cli.process.role import catalog_state, source_state
from frazil.demo.tour.lake_folder import near, program
from frazil.demo.tour.stock import STOCK_ROWS
from frazil.demo.tour.topics_tour import touring_topics
from frazil.demo.tour.tour import touring
from frazil.demo.tour.watch import Pace
from frazil.hooks import SystemClock
from frazil.model.humanize import duration
from frazil.model.policy import DemoSource
from frazil.model.printable import printable, printable_lines
from frazil.pipeline.status.gauges import StatusMetrics
from frazil.pipeline.status.values import Phase
from frazil.telemetry.progress import progress_shown_by
from frazil.web.pages import configured_app
from frazil.web.readiness import Readiness
from frazil.web.server import serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from frazil.cli.process.interrupting import Interrupts
    from frazil.config import Config
    from frazil.demo.tour.topics_tour import TopicsResult
    from frazil.demo.tour.tour import TourResult
    from frazil.demo.tour.watch import Counts, Step
    from frazil.hooks import Clock
    from frazil.pipeline.build_run import PipelineRun
    from frazil.pipeline.status.values import PipelineStatus, TableStatus
    from frazil.pipeline.telemetry import Observed
    from frazil.telemetry.redaction import Redactor

# In a log: often enough to see progress.
LINE_SECONDS = 5.0
# Wide enough for every step; a pipe has no width of its own.
_PLAIN_WIDTH = 110
_TITLE_WIDTH = 14
_INDENT = "    "
_TABLE, _PHASE = f"{_INDENT}TABLE", "PHASE"
# What fits, from the widest on: whoever has little room sees how far each table is behind.
_COLUMNS = (
    (88, (_TABLE, _PHASE, "CAPTURED", "INSERTED", "UPDATED", "DELETED", "BEHIND")),
    (56, (_TABLE, _PHASE, "CAPTURED", "BEHIND")),
    (0, (_TABLE, "BEHIND")),
)
_PHASE_STYLES = {Phase.COPYING: "yellow", Phase.MERGING: "cyan", Phase.STOPPED: "bold red"}


def open_console() -> Console:
    """Standard output: with colours where it is a terminal, plain text elsewhere."""
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = _PLAIN_WIDTH
    return console


class DemoScreen:
    """Prints steps as they end, and the tables while they move.

    On a terminal the tables are updated in place; elsewhere there is a line now and then.
    """

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
        self._live: Live | Status | None = None
        self._said_at = self._clock.monotonic()

    def say(self, text: str = "", *, style: str = "") -> None:
        """A line, verbatim: no markup, no wrapping."""
        self._console.print(Text(printable_lines(text), style=style), soft_wrap=True)

    def show_begin(self, doing: str) -> None:
        """What takes a moment, until it has ended or something else is shown."""
        if not self._is_live:
            # One that shows no progress at all, such as a recording, shows none of this either.
            if self._line_seconds < math.inf:
                self.say(f"  … {doing}")
            return
        self.close()
        self._live = self._console.status(Text(doing, style="dim"), spinner_style="dim")
        self._live.start()

    def show_step(self, step: Step) -> None:
        """A step that has ended."""
        if isinstance(self._live, Status):
            self.close()
        mark, took = ("  ✓ ", "green"), (f"{step.seconds:.1f} s", "dim")
        title = (f"{step.title:<{_TITLE_WIDTH}}", "bold")
        line = Text.assemble(mark, title, f" {step.detail} ", took)
        if self._console.is_terminal and line.cell_len > self._console.width:
            # A narrow terminal would break it in the middle of a word.
            detail = wrap(
                step.detail, self._console.width, initial_indent=_INDENT, subsequent_indent=_INDENT
            )
            line = Text.assemble(mark, (step.title, "bold"), " ", took, "\n", "\n".join(detail))
        self._console.print(line, soft_wrap=True)

    def show(self, status: PipelineStatus, counts: Counts) -> None:
        """The current status."""
        if not self._is_live:
            self._say_sometimes(status, counts)
            return
        if not isinstance(self._live, Live):
            self.close()
            self._live = Live(console=self._console, transient=True, auto_refresh=False)
            self._live.start()
        self._live.update(_tables(status, counts, self._console.width), refresh=True)

    def settle(self, status: PipelineStatus, counts: Counts) -> None:
        """The final status."""
        self.close()
        self._console.print(_tables(status, counts, self._console.width))

    def close(self) -> None:
        """Give the terminal back as it was; a second time does nothing."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def _say_sometimes(self, status: PipelineStatus, counts: Counts) -> None:
        now = self._clock.monotonic()
        if now - self._said_at < self._line_seconds:
            return
        self._said_at = now
        captured = sum(sum(each.captured.values()) for each in status.tables)
        merged = sum(sum(each.merged.values()) for each in status.tables)
        self.say(
            f"  … {_doing(status)}: {counts.brief}, "
            f"{captured:,} rows captured, {merged:,} merged, {duration(status.lag_seconds)} behind"
        )


def _doing(status: PipelineStatus) -> str:
    phases = {each.phase for each in status.tables}
    if not phases:
        return "starting"
    return "copying" if Phase.COPYING in phases else "streaming"


def _tables(status: PipelineStatus, counts: Counts, width: int) -> Group:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    names = next(names for least, names in _COLUMNS if width >= least)
    for name in names:
        is_text = name in {_TABLE, _PHASE}
        table.add_column(
            name,
            justify="left" if is_text else "right",
            min_width={_TABLE: 0, _PHASE: 12}.get(name, 8),
            no_wrap=True,
        )
    for each in status.tables:
        cells = _row(each)
        table.add_row(*(cells[name] for name in names))
    done = counts.full if len(_INDENT + counts.full) <= width else counts.brief
    return Group(Text(), table, Text(f"{_INDENT}{done}", style="dim"), Text())


def _row(each: TableStatus) -> dict[str, Text | str]:
    merged = each.merged
    return {
        _TABLE: Text(f"{_INDENT}{printable(each.table)}"),
        _PHASE: Text(_phase(each), style=_PHASE_STYLES.get(each.phase, "green")),
        "CAPTURED": f"{sum(each.captured.values()):,}",
        "INSERTED": f"{merged.get('insert', 0):,}",
        "UPDATED": f"{merged.get('update', 0):,}",
        "DELETED": f"{merged.get('delete', 0):,}",
        "BEHIND": duration(each.lag_seconds),
    }


def _phase(each: TableStatus) -> str:
    if each.copy is None:
        return each.phase.value
    return f"{each.phase.value} {each.copy.fraction:.0%}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """The options of the command."""

    folder: Path
    seconds: float
    rows: int = STOCK_ROWS
    keep: bool = False
    source: DemoSource | None = None


def run_demo(options: DemoOptions, redactor: Redactor, interrupts: Interrupts) -> ExitCode:
    """Take the tour and print it; with ``--keep``, everything runs until Ctrl-C."""
    show = show_topics_tour if options.source is DemoSource.KAFSCALE else show_tour
    # Its screen shows what is done in its own way.
    try:
        with progress_shown_by(None):
            show(options, DemoScreen(open_console()), redactor, interrupts)
    finally:
        logging.disable(logging.NOTSET)
    return ExitCode.DONE


def show_tour(
    options: DemoOptions, screen: DemoScreen, redactor: Redactor, interrupts: Interrupts
) -> None:
    """The tour on this screen."""
    screen.say("frazil demo: a shop in Postgres, mirrored into Iceberg while it changes")
    screen.say()
    with touring(
        options.folder,
        audience=_Audience(screen, interrupts),
        redactor=redactor,
        serve=partial(_serve, redactor),
        pace=Pace(seconds=options.seconds),
        stock_rows=options.rows,
    ) as result:
        if options.keep:
            _print_result(screen, result)
            _print_kept(screen, result)
            threading.Event().wait()
    _print_result(screen, result)


def show_topics_tour(
    options: DemoOptions, screen: DemoScreen, redactor: Redactor, interrupts: Interrupts
) -> None:
    """The tour of topics on this screen."""
    screen.say("frazil demo: topics in KafScale's segments, captured into Iceberg while they grow")
    screen.say()
    with touring_topics(
        options.folder,
        audience=_Audience(screen, interrupts),
        redactor=redactor,
        serve=partial(_serve, redactor),
        pace=Pace(seconds=options.seconds),
    ) as result:
        if options.keep:
            _print_queries(screen, result)
            _print_kept_topics(screen, result)
            threading.Event().wait()
    _print_queries(screen, result)


class _Audience:
    """The screen; also restores our signal handlers whenever Spark has replaced them."""

    def __init__(self, screen: DemoScreen, interrupts: Interrupts) -> None:
        self._screen = screen
        self._interrupts = interrupts
        self.show, self.settle = screen.show, screen.settle
        self.show_begin = screen.show_begin

    def show_step(self, step: Step) -> None:
        self._interrupts.install()
        self._screen.show_step(step)

    def leave(self, error: BaseException) -> None:
        self._screen.close()
        if isinstance(error, KeyboardInterrupt):
            self._interrupts.announce("stopping everything")
            # What is interrupted complains of just that.
            logging.disable(logging.CRITICAL)


@contextmanager
def _serve(
    redactor: Redactor, run: PipelineRun, config: Config, observed: Observed
) -> Iterator[object]:
    """Serve the status page of a run."""
    readiness, board = Readiness(), run.board
    readiness.add("source", lambda: source_state(board))
    readiness.add("catalog", lambda: catalog_state(run.merge_statuses))
    metrics = StatusMetrics(observed.metrics, board)
    app = configured_app(config.telemetry, metrics, readiness, redactor, board.now)
    with serving(app, config.telemetry.listen) as address:
        yield address


def _print_result(screen: DemoScreen, result: TourResult) -> None:
    contest = result.contest
    screen.say()
    screen.say(
        f"{contest.changes:,} changes into the {contest.rows:,} rows of {contest.mirror}, "
        "one run each:"
    )
    screen.say(f"  frazil's merge   {contest.ours:5.2f} s")
    screen.say(f"  MERGE INTO       {contest.merge_into:5.2f} s  (merge-on-read, its second run)")
    screen.say("  Its time grows with the table, ours with the changes. Try ten million rows:")
    screen.say(f"  {program('frazil')} demo --rows 10000000")
    _print_queries(screen, result)


def _print_queries(screen: DemoScreen, result: TourResult | TopicsResult) -> None:
    screen.say()
    screen.say(
        f"The lake stays in {result.folder.path}: a SQLite catalog and plain files. Query it:"
    )
    for query in result.queries:
        screen.say()
        screen.say(f"# {query.engine}, to paste into {query.into}", style="dim")
        screen.say(query.text)


def _print_kept(screen: DemoScreen, result: TourResult) -> None:
    frazil, document = program("frazil"), near(result.folder.document)
    change = "update shop.orders set total = 0 where id = 1"
    screen.say()
    screen.say("Everything else stays up until Ctrl-C. Change the shop, and query again:")
    screen.say()
    screen.say(f'psql "$(cat {near(result.folder.dsn_file)})" -c "{change}"')
    screen.say(f"{frazil} status -c {document}")
    screen.say(f"{frazil} verify -c {document}")
    screen.say()
    screen.say(f"Status page: {result.page}")


def _print_kept_topics(screen: DemoScreen, result: TopicsResult) -> None:
    frazil, document = program("frazil"), near(result.folder.document)
    screen.say()
    screen.say("Everything else stays up until Ctrl-C. Look around:")
    screen.say()
    screen.say(f"{frazil} status -c {document}")
    screen.say(f"{frazil} verify -c {document}")
    screen.say(f"{frazil} dlq ls -c {document}")
    screen.say(f"{frazil} decode segment {result.segment} -c {document}")
    screen.say()
    screen.say(f"Status page: {result.page}")
