"""The end of a demo: what is printed, and for how long it stays."""

from __future__ import annotations

import logging
import os
import signal
import threading
from contextlib import contextmanager
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest
from rich.console import Console

from frazil.cli.exit_codes import ExitCode
from frazil.cli.process.interrupting import Interrupts, interruptible
from frazil.cli.verbs import demo as demo_verb
from frazil.cli.verbs.demo import (
    DemoOptions,
    DemoScreen,
    run_demo,
    show_topics_tour,
    show_tour,
)
from frazil.demo.tour.lake_folder import LakeFolder, PastedQuery
from frazil.demo.tour.proof import MergeContest
from frazil.demo.tour.topics_tour import TopicsResult
from frazil.demo.tour.tour import TourResult
from frazil.model.policy import DemoSource
from frazil.model.table_name import TableName
from frazil.telemetry.redaction import Redactor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.demo.tour.watch import Audience

RESULT = TourResult(
    folder=LakeFolder(Path("/shop/frazil-demo")),
    page="http://127.0.0.1:9093/",
    contest=MergeContest(
        mirror=TableName("lake", ("shop",), "stock"),
        changes=10_000,
        rows=2_000_000,
        ours=0.41,
        merge_into=1.23,
    ),
    queries=(PastedQuery("DuckDB", "duckdb", "select 1;"),),
)


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was taken down; the tour itself is over at once."""
    taken: list[str] = []

    @contextmanager
    def touring(*_: object, **__: object) -> Iterator[TourResult]:
        try:
            yield RESULT
        finally:
            taken.append("services")

    monkeypatch.setattr(demo_verb, "touring", touring)
    return taken


def run(*, keep: bool) -> tuple[int, str]:
    out = StringIO()
    options = DemoOptions(folder=RESULT.folder.path, seconds=1.0, keep=keep)

    def tour(interrupts: Interrupts) -> int:
        show_tour(options, DemoScreen(Console(file=out, width=80)), Redactor(), interrupts)
        return ExitCode.DONE

    return interruptible(tour), out.getvalue()


def test_the_result_is_printed_when_everything_is_down(left: list[str]) -> None:
    code, said = run(keep=False)
    assert code == ExitCode.DONE
    assert left == ["services"]
    assert "10,000 changes into the 2,000,000 rows of shop.stock" in said
    assert "frazil's merge    0.41 s\n  MERGE INTO        1.23 s" in said
    assert "# DuckDB, to paste into duckdb\nselect 1;\n" in said
    assert "until Ctrl-C" not in said


def test_with_keep_everything_runs_until_an_interrupt(left: list[str]) -> None:
    alarm = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    alarm.start()
    try:
        code, said = run(keep=True)
    finally:
        alarm.cancel()
    assert code == ExitCode.INTERRUPTED
    assert left == ["services"]
    assert said.count("# DuckDB") == 1
    assert "verify -c /shop/frazil-demo/frazil.yaml\n" in said
    assert said.endswith("Status page: http://127.0.0.1:9093/\n")


def test_what_is_interrupted_does_not_complain_of_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def touring(*_: object, audience: Audience, **__: object) -> NoReturn:
        audience.leave(KeyboardInterrupt())
        logging.getLogger("frazil.spark").warning("interrupted while waiting")
        raise KeyboardInterrupt

    monkeypatch.setattr(demo_verb, "touring", touring)
    options = DemoOptions(folder=RESULT.folder.path, seconds=1.0)
    assert interruptible(partial(run_demo, options, Redactor())) == ExitCode.INTERRUPTED
    assert caplog.messages == []
    logging.getLogger("frazil.spark").warning("later")
    assert caplog.messages == ["later"]


def test_the_tour_of_topics_ends_with_its_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    result = TopicsResult(
        folder=RESULT.folder, page=RESULT.page, segment="s3://segments/x", queries=RESULT.queries
    )

    @contextmanager
    def touring_topics(*_: object, **__: object) -> Iterator[TopicsResult]:
        yield result

    monkeypatch.setattr(demo_verb, "touring_topics", touring_topics)
    out = StringIO()
    options = DemoOptions(folder=RESULT.folder.path, seconds=1.0, source=DemoSource.KAFSCALE)
    with Interrupts(KeyboardInterrupt) as interrupts:
        show_topics_tour(options, DemoScreen(Console(file=out, width=80)), Redactor(), interrupts)
    said = out.getvalue()
    assert "topics in KafScale's segments" in said
    assert "The lake stays in /shop/frazil-demo" in said
    assert "# DuckDB, to paste into duckdb\nselect 1;\n" in said
    assert "MERGE INTO" not in said
