from __future__ import annotations

import io
import json
import logging
import sys
import threading
import warnings
from typing import TYPE_CHECKING

import pytest

from frazil.model.policy import LogFormat
from frazil.telemetry.exception_hooks import install_hooks
from frazil.telemetry.jvm_log import JvmLog
from frazil.telemetry.log_fields import bound
from frazil.telemetry.logs import LogSettings, configure_logs, get_logger
from frazil.telemetry.redaction import Redactor
from tests.unit.telemetry.canaries import CANARY, CANARY_PART, every_error

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=[LogFormat.TEXT, LogFormat.JSON])
def output(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    stream = io.StringIO()
    undo = configure_logs(
        LogSettings(format=request.param, values=True), Redactor([CANARY]), stream
    )
    yield stream
    undo()


@pytest.fixture
def reported() -> Iterator[list[BaseException]]:
    errors: list[BaseException] = []
    undo = install_hooks(get_logger("frazil"), errors.append)
    yield errors
    undo()


def assert_clean(stream: io.StringIO, *expected: str) -> None:
    text = stream.getvalue()
    assert CANARY not in text
    assert CANARY_PART not in text
    for expected_text in ("***", *expected):
        assert expected_text in text


def test_fields_of_any_shape_do_not_show_it(output: io.StringIO) -> None:
    with bound(batch=CANARY):
        get_logger("frazil").info(
            f"event {CANARY}",
            text=f"a {CANARY} b",
            structure={"list": [CANARY, {CANARY: CANARY}], "json": json.dumps({"x": CANARY})},
            printed=repr({"x": CANARY}),
            raw=CANARY.encode(),
            error=ValueError(CANARY),
            row=(CANARY,),
        )
    assert_clean(output, "event")


def test_traces_of_every_error_do_not_show_it(output: io.StringIO) -> None:
    log = get_logger("frazil")
    for error in every_error():
        log.write(logging.ERROR, "batch failed", {"error": error}, trace=error)
        logging.getLogger("foreign").error("failed: %s", error.args[0], exc_info=error)
    assert_clean(
        output,
        "KeyError",
        "OSError",
        "RuntimeError",
        "note ",
        "ExceptionGroup",
        "IllegalStateException",
    )


def test_uncaught_exceptions_do_not_show_it(
    output: io.StringIO, reported: list[BaseException]
) -> None:
    for error in every_error():
        sys.excepthook(type(error), error, error.__traceback__)
    sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(CANARY), None)
    assert_clean(output, "uncaught exception", "KeyboardInterrupt")
    assert len(reported) == len(every_error())


def test_uncaught_exceptions_of_threads_do_not_show_it(
    output: io.StringIO, reported: list[BaseException]
) -> None:
    def fail() -> None:
        raise ValueError(CANARY)

    for target in (fail, sys.exit):
        thread = threading.Thread(target=target, name="reader")
        thread.start()
        thread.join()
    assert_clean(output, "uncaught exception in thread", "reader")
    assert [type(error) for error in reported] == [ValueError]


def test_exceptions_that_python_ignores_do_not_show_it(
    output: io.StringIO, reported: list[BaseException]
) -> None:
    class Leaving:
        def __del__(self) -> None:
            raise ValueError(CANARY)

    Leaving()
    assert_clean(output, "exception ignored")
    assert len(reported) == 1


def test_warnings_do_not_show_it(output: io.StringIO) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        # The block sets aside the handlers of the logs.
        logging.captureWarnings(capture=False)
        logging.captureWarnings(capture=True)
        warnings.warn(f"odd {CANARY}", stacklevel=1)
        logging.captureWarnings(capture=False)
    assert_clean(output, "UserWarning")


def test_lines_of_the_jvm_do_not_show_it(output: io.StringIO) -> None:
    jvm = JvmLog()
    thrown = f"java.io.IOException: {CANARY}\n\tat org.apache.X.y(X.java:1)"
    message = {"level": "ERROR", "logger": "org.apache.X", "message": CANARY, "thrown": thrown}
    jvm.log_line(json.dumps(message) + "\n")
    jvm.log_line(json.dumps(message, ensure_ascii=False) + "\n")
    jvm.log_line(f"worker says {CANARY}\n")
    jvm.log_line("Map(s3.secret-access-key -> not-learnt-at-all, s3.region -> eu)\n")
    assert_clean(output, "spark message", "spark output", "s3.region")
    assert "not-learnt-at-all" not in output.getvalue()
