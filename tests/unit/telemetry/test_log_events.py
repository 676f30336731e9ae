from __future__ import annotations

import io
import json
import logging
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

import pytest
import structlog

from frazil.model.policy import LogFormat, LogLevel
from frazil.telemetry.log_fields import bound
from frazil.telemetry.logs import LogSettings, configure_logs, get_logger
from frazil.telemetry.redaction import Redactor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Configure(Protocol):
    def __call__(self, settings: LogSettings, stream: io.StringIO) -> io.StringIO: ...


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def configure() -> Iterator[Configure]:
    undos: list[Callable[[], None]] = []

    def start(settings: LogSettings, stream: io.StringIO) -> io.StringIO:
        undos.append(configure_logs(settings, Redactor(["hunter2"]), stream))
        return stream

    yield start
    for undo in reversed(undos):
        undo()


JSON = LogSettings(format=LogFormat.JSON)


def events(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_one_json_object_with_time_level_logger_and_fields(
    configure: Configure,
) -> None:
    stream = configure(JSON, io.StringIO())
    get_logger("frazil.merge").info("batch committed", table="public.orders", rows=3)
    (event,) = events(stream)
    moment = datetime.fromisoformat(str(event.pop("timestamp")))
    assert moment.utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - moment) < timedelta(minutes=1)
    assert event == {
        "level": "info",
        "logger": "frazil.merge",
        "event": "batch committed",
        "table": "public.orders",
        "rows": 3,
    }


def test_auto_is_json_in_a_pipe_and_console_on_a_terminal(
    configure: Configure,
) -> None:
    pipe = configure(LogSettings(), io.StringIO())
    get_logger("frazil").info("started")
    terminal = configure(LogSettings(), Terminal())
    get_logger("frazil").info("started", table="t")
    assert events(pipe)[0]["event"] == "started"
    assert not terminal.getvalue().startswith("{")
    assert "started" in terminal.getvalue()


def test_colours_need_a_terminal_and_no_setting_against_them(
    configure: Configure,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    console = LogSettings(format=LogFormat.TEXT)
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = configure(console, Terminal())
    get_logger("frazil").info("started")
    piped = configure(console, io.StringIO())
    get_logger("frazil").info("started")
    monkeypatch.setenv("NO_COLOR", "1")
    refused = configure(console, Terminal())
    get_logger("frazil").info("started")
    assert "\x1b[" in coloured.getvalue()
    assert "\x1b[" not in piped.getvalue() + refused.getvalue()


def test_control_characters_do_not_reach_a_terminal(
    configure: Configure,
) -> None:
    stream = configure(LogSettings(format=LogFormat.TEXT), io.StringIO())
    get_logger("frazil").info("started", table="x\x1b[2Jy\rz")
    assert "\x1b" not in stream.getvalue()
    assert "\r" not in stream.getvalue()


@pytest.mark.fault("N48")
def test_a_name_writes_no_line_of_its_own_and_turns_none_around(configure: Configure) -> None:
    stream = configure(LogSettings(format=LogFormat.TEXT), io.StringIO())
    name = "x\n2026-01-01 [error] all is lost\u202e\x9b2J"
    get_logger("frazil").info("started", table=name, tables=[name], **{name: 1})
    assert len(stream.getvalue().splitlines()) == 1
    assert not re.search("[\u202e\x9b]", stream.getvalue())
    get_logger("frazil").write(logging.ERROR, "failed", {}, trace=ValueError(name))
    # A trace may have lines.
    assert "ValueError: x\n" in stream.getvalue()
    assert not re.search("[\u202e\x9b]", stream.getvalue())


@pytest.mark.fault("G12")
def test_row_values_are_dropped_unless_configured(
    configure: Configure,
) -> None:
    fields = {"row": 1, "before": 2, "detail": {"payload": 3, "list": [{"after": 4}]}, "rows": 5}
    without = configure(JSON, io.StringIO())
    get_logger("frazil").info("change refused", **fields)
    with_values = configure(LogSettings(format=LogFormat.JSON, values=True), io.StringIO())
    get_logger("frazil").info("change refused", **fields)
    shown = events(without)[0]
    assert {key: shown.get(key) for key in fields} == {
        "row": None,
        "before": None,
        "detail": {"list": [{}]},
        "rows": 5,
    }
    assert fields.items() <= events(with_values)[0].items()


def test_bound_fields_come_with_every_event_of_the_block(
    configure: Configure,
) -> None:
    stream = configure(JSON, io.StringIO())
    log = get_logger("frazil").bind(role="merge")
    with bound(batch=7), bound(table="public.orders"):
        log.info("batch planned")
        logging.getLogger("third.party").warning("odd")
    log.info("idle", table="mine")
    inside, foreign, outside = events(stream)
    assert {"batch": 7, "table": "public.orders", "role": "merge"}.items() <= inside.items()
    assert {"batch": 7, "table": "public.orders"}.items() <= foreign.items()
    assert "batch" not in outside
    assert outside["table"] == "mine"


def test_foreign_logs_and_structlog_itself_take_the_same_way(
    configure: Configure,
) -> None:
    stream = configure(JSON, io.StringIO())
    logging.getLogger("third.party").warning("refused %s", "hunter2")
    structlog.get_logger("another").warning("refused", secret_word="hunter2", who="x hunter2")
    foreign, other = events(stream)
    assert (foreign["event"], foreign["logger"]) == ("refused ***", "third.party")
    assert (other["event"], other["who"], other["secret_word"]) == ("refused", "x ***", "***")


def test_levels_are_kept_and_noisy_libraries_are_quiet(
    configure: Configure,
) -> None:
    stream = configure(LogSettings(format=LogFormat.JSON, level=LogLevel.DEBUG), io.StringIO())
    logging.getLogger("py4j.java_gateway").info("command to send")
    logging.getLogger("py4j.java_gateway").warning("gateway gone")
    log = get_logger("frazil")
    log.debug("one")
    log.warning("two")
    log.error("three")
    assert [(event["level"], event["event"]) for event in events(stream)] == [
        ("warning", "gateway gone"),
        ("debug", "one"),
        ("warning", "two"),
        ("error", "three"),
    ]
    quiet = configure(LogSettings(format=LogFormat.JSON, level=LogLevel.ERROR), io.StringIO())
    log.warning("two")
    logging.getLogger("py4j").warning("gateway gone")
    assert quiet.getvalue() == ""


def test_an_exception_given_as_a_field_is_its_type_and_message(
    configure: Configure,
) -> None:
    stream = configure(JSON, io.StringIO())
    get_logger("frazil").error("commit failed", error=ValueError("password=x refused"))
    assert events(stream)[0]["error"] == "ValueError: password=*** refused"


def test_a_trace_has_no_locals(
    configure: Configure,
) -> None:
    stream = configure(JSON, io.StringIO())
    marker = "-".join(["local", "variable"])
    try:
        int(marker[:0])
    except ValueError:
        get_logger("frazil").exception("parse failed")
    (event,) = events(stream)
    assert "ValueError" in str(event["exception"])
    assert marker not in stream.getvalue()


def test_anything_can_be_a_field_of_a_json_event(
    configure: Configure,
) -> None:
    stream = configure(JSON, io.StringIO())
    get_logger("frazil").info("odd", a=float("nan"), b={(1, 2): b"x"}, c={1}, d=object, e=[1.5])
    (event,) = events(stream)
    assert (event["a"], event["b"], event["e"]) == ("nan", {"(1, 2)": "b'x'"}, [1.5])


def test_an_event_that_cannot_be_written_is_counted_but_not_shown(
    configure: Configure,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stream = configure(JSON, io.StringIO())
    arguments = ("hunter2",)
    logging.getLogger("third.party").warning("wrong %s %s", *arguments)
    (event,) = events(stream)
    assert (event["event"], event["of"], event["error"]) == (
        "log event lost",
        "third.party",
        "TypeError",
    )
    assert capsys.readouterr().err == ""


def test_a_closed_stream_is_endured(
    configure: Configure,
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure(JSON, io.StringIO()).close()
    get_logger("frazil").info("started", note="hunter2")
    assert capsys.readouterr().err == ""


def test_undoing_puts_handlers_and_levels_back() -> None:
    root = logging.getLogger()
    before = (list(root.handlers), root.level, logging.getLogger("py4j").level)
    undo = configure_logs(JSON, Redactor(), io.StringIO())
    assert list(root.handlers) != before[0]
    undo()
    assert (list(root.handlers), root.level, logging.getLogger("py4j").level) == before


def test_importing_logs_loads_neither_structlog_nor_rich() -> None:
    code = (
        "import sys; import frazil.telemetry.logs as l; l.get_logger('x').info('y');"
        "print(sorted({'structlog', 'rich', 'sentry_sdk', 'opentelemetry'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
