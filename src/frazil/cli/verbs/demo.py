"""The verb ``demo``."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.cli.exit_codes import ExitCode
from frazil.cli.process.role import catalog_state, source_state
from frazil.cli.verbs.demo_screen import DemoScreen, open_console
from frazil.demo.tour.pasted_queries import near, program
from frazil.demo.tour.tour import touring
from frazil.demo.tour.watch import Pace
from frazil.pipeline.status.gauges import StatusMetrics
from frazil.web.app import build_app
from frazil.web.pages import configured_hosts, configured_pages
from frazil.web.readiness import Readiness
from frazil.web.server import serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from frazil.cli.process.interrupting import Interrupts
    from frazil.config import Config
    from frazil.demo.tour.shop_workload import ShopCounts
    from frazil.demo.tour.tour import TourResult
    from frazil.demo.tour.watch import Step
    from frazil.pipeline.build_run import PipelineRun
    from frazil.pipeline.status.values import PipelineStatus
    from frazil.pipeline.telemetry import Observed
    from frazil.telemetry.redaction import Redactor


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """The options of the command."""

    folder: Path
    seconds: float
    keep: bool = False


def run_demo(options: DemoOptions, redactor: Redactor, interrupts: Interrupts) -> ExitCode:
    """Take the tour and print it; with ``--keep``, everything runs until Ctrl-C."""
    show_tour(options, DemoScreen(open_console()), redactor, interrupts)
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
        serve=_Pages(redactor),
        pace=Pace(seconds=options.seconds),
    ) as result:
        if options.keep:
            _print_result(screen, result)
            _print_kept(screen, result)
            threading.Event().wait()
    _print_result(screen, result)


class _Audience:
    """The screen; also restores our signal handlers whenever Spark has replaced them."""

    def __init__(self, screen: DemoScreen, interrupts: Interrupts) -> None:
        self._screen = screen
        self._interrupts = interrupts

    def show_step(self, step: Step) -> None:
        self._interrupts.install()
        self._screen.show_step(step)

    def show(self, status: PipelineStatus, counts: ShopCounts) -> None:
        self._screen.show(status, counts)

    def settle(self, status: PipelineStatus, counts: ShopCounts) -> None:
        self._screen.settle(status, counts)

    def leave(self, error: BaseException) -> None:
        self._screen.close()
        if isinstance(error, KeyboardInterrupt):
            self._interrupts.announce("stopping everything")


class _Pages:
    """Serves the status page of a run."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    @contextmanager
    def __call__(self, run: PipelineRun, config: Config, observed: Observed) -> Iterator[object]:
        readiness = Readiness()
        readiness.add("source", lambda: source_state(run.board))
        readiness.add("catalog", lambda: catalog_state(run.merge_statuses))
        metrics = StatusMetrics(observed.metrics, run.board)
        pages = configured_pages(config.telemetry, run.board.now, self._redactor)
        app = build_app(
            metrics, readiness, self._redactor, pages, hosts=configured_hosts(config.telemetry)
        )
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
    screen.say(f"  MERGE INTO       {contest.merge_into:5.2f} s  (merge-on-read, warmed up)")
    screen.say("  Its time grows with the table, ours with the changes: see README for 40 M rows.")
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
