"""The verb ``status``: the state of every table, from the running process or from the lake."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NoReturn

from frazil.cli.exit_codes import ExitCode
from frazil.cli.output import OutputFormat, write_json, write_line, write_note, write_table
from frazil.cli.process.interrupting import Interrupted
from frazil.cli.verbs.status.client import NoAnswer, request_status
from frazil.cli.verbs.status.lines import (
    HEADER,
    PARTITION_HEADER,
    partition_rows,
    problem_lines,
    status_lines,
    table_row,
)
from frazil.errors import ConfigError
from frazil.hooks import SystemClock
from frazil.model.policy import LogLevel
from frazil.pipeline.status.json_form import redact_status, status_to_json
from frazil.telemetry.logs import LogSettings, configure_logs

if TYPE_CHECKING:
    from frazil.cli.invocation import Invocation
    from frazil.config import Config
    from frazil.hooks import Clock
    from frazil.pipeline.status.values import PipelineStatus
    from frazil.telemetry.redaction import Redactor

# As often as one can follow.
WATCH_SECONDS: Final = 1.0


def show_status(invocation: Invocation, *, watch: bool, clock: Clock | None = None) -> ExitCode:
    """Print the status of the pipeline; with ``watch``, repeatedly until Ctrl-C."""
    config, output = invocation.load(invocation.document).config, invocation.output
    if watch:
        _require_screen(output)
        return _watch(config, output, invocation.redactor, clock or SystemClock())
    status = request_status(config)
    if isinstance(status, NoAnswer):
        write_note(f"{status.reason}; reading the lake instead")
        status = _read_lake(config, invocation.redactor)
    shown = redact_status(status, invocation.redactor)
    print_status(shown, output)
    return ExitCode.ACTION_REQUIRED if shown.action_required else ExitCode.DONE


def print_status(status: PipelineStatus, output: OutputFormat) -> None:
    """The result, once; its texts were redacted."""
    if output is OutputFormat.JSON:
        write_json(status_to_json(status))
        return
    for line in status_lines(status):
        write_line(line)
    write_line()
    if status.tables:
        write_table([table_row(each, status) for each in status.tables], header=HEADER)
    else:
        write_line("no tables yet")
    if rows := partition_rows(status):
        write_line()
        write_table(rows, header=PARTITION_HEADER)
    problems = problem_lines(status)
    if problems:
        write_line()
    for line in problems:
        write_line(line)


def _require_screen(output: OutputFormat) -> None:
    if output is OutputFormat.TABLE and not sys.stdout.isatty():
        raise ConfigError(
            "--watch repaints a terminal, and this is none.",
            next_step="add -o json for a line whenever something changes, or leave --watch out",
        )


def _watch(config: Config, output: OutputFormat, redactor: Redactor, clock: Clock) -> ExitCode:
    """Until Ctrl-C, which is how it is meant to end."""
    try:
        if output is OutputFormat.JSON:
            _watch_lines(config, redactor, clock)
        else:
            _watch_screen(config, redactor, clock)
    except (KeyboardInterrupt, Interrupted):
        return ExitCode.DONE
    except BrokenPipeError:
        # Who read the lines has seen enough; Python would complain once more at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.DONE


def _watch_screen(config: Config, redactor: Redactor, clock: Clock) -> NoReturn:
    # Only here, because the rest of the command does without what paints.
    from frazil.cli.verbs.status.screen import Screen  # noqa: PLC0415

    seen: PipelineStatus | None = None
    with Screen() as screen:
        while True:
            answer = request_status(config)
            note = answer.reason if isinstance(answer, NoAnswer) else None
            if not isinstance(answer, NoAnswer):
                seen = redact_status(answer, redactor)
            screen.show(seen, note)
            clock.sleep(WATCH_SECONDS)


def _watch_lines(config: Config, redactor: Redactor, clock: Clock) -> NoReturn:
    """A line of JSON whenever something other than the time has changed."""
    last: PipelineStatus | None = None
    last_reason: str | None = None
    while True:
        answer = request_status(config)
        if isinstance(answer, NoAnswer):
            if answer.reason != last_reason:
                write_note(f"{answer.reason}; waiting for one")
            last_reason = answer.reason
        else:
            last_reason = None
            status = redact_status(answer, redactor)
            if last is None or status != replace(last, at=status.at):
                write_json(status_to_json(status), indent=None)
                sys.stdout.flush()
                last = status
        clock.sleep(WATCH_SECONDS)


def _read_lake(config: Config, redactor: Redactor) -> PipelineStatus:
    """Start a session for it, which takes seconds."""
    # Only here, because querying a process must not wait until Spark is imported.
    from frazil.clients.iceberg.lake import Lake  # noqa: PLC0415
    from frazil.clients.spark.session import open_session  # noqa: PLC0415
    from frazil.pipeline.offline_status import load_offline_status  # noqa: PLC0415

    configure_logs(LogSettings(level=LogLevel.WARNING), redactor)
    with open_session(config) as session:
        return load_offline_status(Lake(session, config.catalog.name), config)
