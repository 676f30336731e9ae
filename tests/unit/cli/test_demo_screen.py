"""The output of a demo: an updating table on a terminal, lines elsewhere."""

from __future__ import annotations

import re
import signal
from io import StringIO

import pytest
from rich.console import Console

from frazil.cli.exit_codes import ExitCode
from frazil.cli.process.interrupting import Interrupts, interruptible
from frazil.cli.verbs.demo import LINE_SECONDS, DemoScreen
from frazil.demo.tour.shop_changes import Happening
from frazil.demo.tour.shop_workload import ShopCounts
from frazil.demo.tour.watch import Step
from frazil.hooks import ManualClock
from tests.support.status.statuses import NOW, running

COUNTS = ShopCounts(kinds={Happening.ORDER_PLACED: 1_200, Happening.SALE: 34}, rows=5_678)


def console_of(*, is_terminal: bool) -> Console:
    return Console(file=StringIO(), force_terminal=is_terminal, width=110, highlight=False)


def written(console: Console) -> str:
    file = console.file
    assert isinstance(file, StringIO)
    return file.getvalue()


def test_off_a_terminal_there_is_a_line_now_and_then_and_nothing_is_coloured() -> None:
    console, clock = console_of(is_terminal=False), ManualClock(NOW)
    screen = DemoScreen(console, clock=clock)
    for _ in range(10):
        screen.show(running(), COUNTS)
        clock.advance(LINE_SECONDS / 4)
    lines = written(console).splitlines()
    assert len(lines) == 2
    assert all("1,234 transactions in the shop" in line for line in lines)
    assert "\x1b" not in written(console)


def test_on_a_terminal_the_table_moves_and_is_gone_before_the_last_one() -> None:
    console = console_of(is_terminal=True)
    screen = DemoScreen(console)
    for _ in range(3):
        screen.show(running(), COUNTS)
    screen.show_step(Step("Copied", "50 rows", 1.25))
    screen.settle(running(), COUNTS)
    screen.close()
    text = written(console)
    hides, shows = "\x1b[?25l", "\x1b[?25h"
    assert text.count(hides) == text.count(shows) == 1
    assert text.index(shows) < text.rindex("CAPTURED")


def test_what_takes_a_moment_is_said_in_a_log_and_gone_from_a_terminal() -> None:
    log, terminal = console_of(is_terminal=False), console_of(is_terminal=True)
    DemoScreen(log).show_begin("starting Spark")
    assert written(log) == "  … starting Spark\n"
    screen = DemoScreen(terminal)
    screen.show_begin("starting Spark")
    screen.show_step(Step("Spark 4.1", "with Iceberg", 1.25))
    text = written(terminal)
    erased = text.rindex("\x1b[2K")
    assert text.index("starting Spark") < erased < text.index("with Iceberg")


def test_the_last_table_shows_the_outcome_of_every_table() -> None:
    console = console_of(is_terminal=False)
    status = running()
    DemoScreen(console).settle(status, COUNTS)
    text = written(console)
    assert all(each.table in text for each in status.tables)
    assert "5,678 rows changed" in text


@pytest.mark.parametrize("width", [40, 60, 88])
def test_a_narrow_terminal_gets_fewer_columns_and_whole_words(width: int) -> None:
    console = Console(file=StringIO(), force_terminal=True, width=width, no_color=True)
    screen, status = DemoScreen(console), running()
    screen.show_step(Step("Proof", "2,000,000 rows in 7 mirrors: each one is as in Postgres", 1.25))
    screen.settle(status, COUNTS)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", written(console))
    assert all(len(line.rstrip()) <= width for line in text.splitlines())
    assert all(each.table in text for each in status.tables)
    assert "BEHIND" in text
    assert "…" not in text


def test_a_line_to_paste_is_neither_broken_nor_marked() -> None:
    console = console_of(is_terminal=True)
    query = f"select '[bold]', {', '.join(f'column_{number}' for number in range(60))} from t"
    DemoScreen(console).say(query)
    assert query in written(console)


def test_the_first_interrupt_leaves_every_block_and_is_announced_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    left = []

    def work(interrupts: Interrupts) -> int:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            interrupts.announce("stopping everything")
            raise
        finally:
            left.append("block")
        return ExitCode.DONE

    before = signal.getsignal(signal.SIGINT)
    assert interruptible(work) == ExitCode.INTERRUPTED
    assert left == ["block"]
    assert capsys.readouterr().err == "interrupted: stopping everything\n"
    assert signal.getsignal(signal.SIGINT) is before


def test_uninterrupted_work_returns_its_result() -> None:
    assert interruptible(lambda _: ExitCode.DONE) == ExitCode.DONE
