from __future__ import annotations

import json
import logging

import pytest

from frazil.telemetry.jvm_log import JvmLog


def fields(record: logging.LogRecord) -> dict[str, object]:
    found: dict[str, object] = record.__dict__["frazil_fields"]
    return found


@pytest.mark.parametrize(
    ("level", "number"),
    [
        ("TRACE", logging.DEBUG),
        ("DEBUG", logging.DEBUG),
        ("INFO", logging.INFO),
        ("WARN", logging.WARNING),
        ("ERROR", logging.ERROR),
        ("FATAL", logging.CRITICAL),
        ("NOTICE", logging.INFO),
    ],
)
def test_a_json_line_becomes_a_message_of_its_level(
    level: str, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    JvmLog().log_line(json.dumps({"level": level, "logger": "org.X", "message": "gone"}) + "\n")
    (record,) = caplog.records
    assert (record.levelno, record.name, record.message) == (
        number,
        "frazil.spark",
        "spark message",
    )
    assert fields(record) == {"source": "org.X", "message": "gone"}


def test_a_stack_trace_comes_along(caplog: pytest.LogCaptureFixture) -> None:
    line = {"level": "ERROR", "logger": "org.X", "message": "m", "thrown": "a.B: c\n\tat d\n"}
    JvmLog().log_line(json.dumps(line))
    assert fields(caplog.records[0])["exception"] == "a.B: c\n\tat d"


@pytest.mark.parametrize(
    "line", ["plain", "{broken", "[1]", "{}", '{"level": "WARN"}', "3", "{" * 100_000]
)
def test_any_other_line_is_output(line: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    JvmLog().log_line(line + "\r\n")
    (record,) = caplog.records
    assert (record.levelno, record.message) == (logging.INFO, "spark output")
    assert fields(record) == {"line": line}


def test_what_every_start_of_spark_says_is_for_debugging(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        JvmLog().log_line("WARNING: Using incubator modules: jdk.incubator.vector\n")
        JvmLog().log_line("WARNING: something else\n")
    assert [each.levelno for each in caplog.records] == [logging.DEBUG, logging.INFO]


def test_blank_lines_are_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    JvmLog().log_line("  \n")
    assert caplog.records == []


def test_whatever_a_jvm_says_that_was_asked_to_end_is_for_debugging(
    caplog: pytest.LogCaptureFixture,
) -> None:
    jvm = JvmLog()
    jvm.expect_end()
    with caplog.at_level(logging.DEBUG):
        for level in ("WARN", "ERROR"):
            jvm.log_line(json.dumps({"level": level, "logger": "org.X", "message": "gone"}))
    assert [each.levelno for each in caplog.records] == [logging.DEBUG, logging.DEBUG]
