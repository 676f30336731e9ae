from __future__ import annotations

import json
import logging
import socket
from typing import TYPE_CHECKING

import pytest

from frazil.errors import ConfigError
from frazil.telemetry.logs import get_logger
from frazil.telemetry.redaction import Redactor
from frazil.telemetry.reporting import NoReporting, start_reporting
from tests.unit.telemetry.canaries import CANARY, CANARY_PART, every_error
from tests.unit.telemetry.http_sink import Sink, listening_sink

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.telemetry.reporting import Reporting


@pytest.fixture
def sink(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sink]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with listening_sink() as opened:
        yield opened


def start(sink: Sink) -> Reporting:
    return start_reporting(
        f"http://public-key@{sink.host}/1",
        environment="test",
        release="1.2.3",
        pipeline="shop",
        redactor=Redactor([CANARY]),
    )


def failing_call(argument: str) -> None:
    local_variable = f"local-{len(argument)}-local"
    message = f"no {argument}"
    raise ValueError(message, len(local_variable))


def received(sink: Sink) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for body in sink.bodies:
        for line in body.splitlines():
            parsed = json.loads(line)
            if "exception" in parsed:
                found.append(parsed)
    return found


def test_without_an_address_nothing_is_reported() -> None:
    reporting = start_reporting(
        None, environment=None, release="1", pipeline="shop", redactor=Redactor()
    )
    assert isinstance(reporting, NoReporting)
    reporting.report(ValueError("x"))
    reporting.close()


@pytest.mark.parametrize("dsn", ["nonsense", "ftp://key@127.0.0.1/1", "http://127.0.0.1/1"])
def test_what_is_no_address_is_a_mistake_in_the_configuration(dsn: str) -> None:
    with pytest.raises(ConfigError, match=r"telemetry\.sentry\.dsn"):
        start_reporting(dsn, environment=None, release="1", pipeline="x", redactor=Redactor())


def test_a_report_says_what_broke_where_and_in_which_release(sink: Sink) -> None:
    reporting = start(sink)
    try:
        failing_call("table")
    except ValueError as error:
        reporting.report(error)
    reporting.close()
    (event,) = received(sink)
    assert event["tags"] == {"service": "frazil", "pipeline": "shop", "release": "1.2.3"}
    assert (event["release"], event["environment"]) == ("1.2.3", "test")
    text = json.dumps(event)
    assert "failing_call" in text
    assert "ValueError" in text


@pytest.mark.fault("G11")
def test_a_planted_secret_arrives_in_no_form(sink: Sink) -> None:
    reporting = start(sink)
    log = get_logger("frazil.merge")
    logging.getLogger("frazil.merge").setLevel(logging.INFO)
    log.write(logging.INFO, f"planned {CANARY}", {"note": CANARY, "row": ["row-value-1"]})
    for error in every_error():
        reporting.report(error)
    try:
        failing_call(CANARY)
    except ValueError as error:
        reporting.report(error)
    reporting.close()
    everything = b"\n".join(sink.bodies).decode() + "\n".join(sink.headers)
    assert len(received(sink)) == len(every_error()) + 1
    assert CANARY_PART not in everything
    assert "row-value-1" not in everything
    for text in ("KeyError", "OSError", "RuntimeError", "ExceptionGroup", "Py4JJavaError", "***"):
        assert text in everything
    assert "planned ***" in everything


def test_locals_host_and_command_line_stay_here(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["frazil", "--password", "on-the-command-line"])
    reporting = start(sink)
    try:
        failing_call("x" * 37)
    except ValueError as error:
        reporting.report(error)
    reporting.close()
    (event,) = received(sink)
    text = json.dumps(event)
    assert "local-37-local" not in text
    assert '"vars"' not in text
    assert "on-the-command-line" not in text
    assert socket.gethostname() not in text
    assert not {"server_name", "user", "request", "modules"} & event.keys()


def test_an_error_in_a_log_is_a_breadcrumb_and_not_a_report(sink: Sink) -> None:
    reporting = start(sink)
    get_logger("frazil").error("commit failed")
    reporting.close()
    assert received(sink) == []


def test_after_closing_nothing_is_sent(sink: Sink) -> None:
    reporting = start(sink)
    reporting.close()
    reporting.report(ValueError("late"))
    assert sink.bodies == []
