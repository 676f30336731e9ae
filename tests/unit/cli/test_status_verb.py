"""``frazil status`` against a real server in a thread, and against none."""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import count
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from frazil.cli.exit_codes import ExitCode
from frazil.cli.invocation import Invocation
from frazil.cli.main import main
from frazil.cli.output import OutputFormat
from frazil.cli.verbs.status.lines import problem_lines, status_lines
from frazil.cli.verbs.status.screen import Screen, paint
from frazil.cli.verbs.status.verb import show_status
from frazil.hooks import ManualClock
from frazil.pipeline.status.json_form import status_from_json, status_to_json
from frazil.telemetry.metrics import Metrics
from frazil.telemetry.redaction import Redactor
from frazil.web.access import HostRule
from frazil.web.app import build_app
from frazil.web.pages import build_pages
from frazil.web.readiness import Readiness
from frazil.web.server import serving
from tests.support.status.statuses import (
    NOW,
    SCENARIOS,
    in_danger,
    merge_only,
    running,
    source_stopped,
    stopped,
    unreachable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from frazil.pipeline.status.values import PipelineStatus

Capture = pytest.CaptureFixture[str]

TOKEN = "a-token-of-some-length"
DOCUMENT = """
pipeline: shop
catalog: {{kind: sql, uri: 'sqlite:///c.db', warehouse: 'file:///wh'}}
tables:
  - {{mirror: public.users, changelog: public.users_changelog, key: [id]}}
telemetry: {{listen: '{listen}', pages: {pages}, token: {token}}}
"""


@contextmanager
def served(
    now: Callable[[], PipelineStatus], *, token: str | None = None, listen: str = "127.0.0.1:0"
) -> Iterator[str]:
    redactor = Redactor()
    pages = build_pages(now, redactor, token=token, hosts=HostRule(is_local=True))
    metrics = Metrics("shop", release="1", redactor=redactor)
    app = build_app(metrics, Readiness(), redactor, routes=pages, hosts=HostRule(is_local=True))
    with serving(app, listen) as address:
        yield str(address)


@pytest.fixture
def document(tmp_path: Path) -> Callable[..., Path]:
    def write(listen: str, *, token: str | None = None, pages: str = "true") -> Path:
        file = tmp_path / "frazil.yaml"
        text = DOCUMENT.format(listen=listen, token=token or "null", pages=pages)
        file.write_text(text)
        return file

    return write


@pytest.fixture
def no_jvm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Reading the lake fails, with an error that says so."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    monkeypatch.setenv("PATH", str(tmp_path))


class Impatient(ManualClock):
    """Ctrl-C after so many waits, each of which may change something."""

    def __init__(self, *changes: Callable[[], object]) -> None:
        super().__init__(NOW)
        self._changes = list(changes)

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if not self._changes:
            raise KeyboardInterrupt
        self._changes.pop(0)()


def test_the_table_shows_the_state_of_every_table(
    document: Callable[..., Path], capsys: Capture
) -> None:
    with served(stopped) as address:
        code = main(["status", "-c", str(document(address))])
    assert code == ExitCode.ACTION_REQUIRED
    shown = capsys.readouterr()
    assert shown.err == ""
    lines = shown.out.splitlines()
    assert lines[:5] == [
        "shop  frazil 0.1.0  ingest + merge  up 2 d 4 h",
        "1 of 6 tables needs you. Readers of the other 5 tables see everything up to 3.4 s ago. "
        "Readers of the one that is stopped are further behind.",
        "source postgres  1.4 s, 180 KiB behind  slot shop_frazil reserved, active, keeps 40 MiB, "
        "safe for 9.5 GiB more  next batch in 3 s",
        "",
        "TABLE               PHASE              LAG            ROWS     LAST COMMIT  "
        "SNAPSHOT             NEXT RUN",
    ]
    newest = stopped().tables[1].commits[0].snapshot_id
    ago = ["7", "s", "ago"]
    assert lines[6].split() == [
        "public.invoices", "stopped", "12", "MiB", "41,200", *ago, str(newest), "–",
    ]  # fmt: skip
    assert "waiting, retrying" in lines[7]
    assert "public.invoices is stopped since 41 min ago (FRZ-SCH-01)" in lines
    assert "  Next: frazil resync public.invoices" in lines
    assert "public.orders is tried again since 18 s ago, next try in 5 s (FRZ-LAK-05)" in lines


def test_json_is_the_status_itself(document: Callable[..., Path], capsys: Capture) -> None:
    with served(running) as address:
        assert main(["status", "-c", str(document(address)), "-o", "json"]) == ExitCode.DONE
    assert status_from_json(json.loads(capsys.readouterr().out)) == running()


@pytest.mark.fault("N55")
@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("running", ExitCode.DONE),
        ("copying", ExitCode.DONE),
        ("unreachable", ExitCode.DONE),
        ("stopped", ExitCode.ACTION_REQUIRED),
        ("source stopped", ExitCode.ACTION_REQUIRED),
    ],
)
@pytest.mark.parametrize("output", ["table", "json"])
def test_what_requires_action_exits_3(
    name: str, code: ExitCode, output: str, document: Callable[..., Path]
) -> None:
    with served(SCENARIOS[name]) as address:
        assert main(["status", "-c", str(document(address)), "-o", output]) == code


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_condition_can_be_shown(
    name: str, document: Callable[..., Path], capsys: Capture
) -> None:
    status = replace(SCENARIOS[name](), pipeline="shop")
    with served(lambda: status) as address:
        main(["status", "-c", str(document(address))])
    shown = capsys.readouterr().out
    assert all(each.table in shown for each in status.tables)
    # Wide enough that nothing is cut; the very lines of the plain form.
    console = Console(width=2000, file=io.StringIO(), highlight=False)
    console.print(*paint(status), sep="\n")
    painted = console.file.getvalue()  # type: ignore[attr-defined]
    for line in (*status_lines(status), *problem_lines(status)):
        assert line in painted


def test_rarer_conditions_are_shown() -> None:
    (line,) = [each for each in status_lines(unreachable()) if each.startswith("source")]
    assert "unknown since 1 min 35 s ago" in line
    assert "reserved" not in line
    (line,) = [each for each in status_lines(in_danger()) if each.startswith("source")]
    assert "slot shop_frazil unreserved, not active, keeps 40 MiB, safe for 0 B more" in line
    assert problem_lines(unreachable())[0] == (
        "the source cannot be read since 1 min 35 s ago, next try in 12 s (FRZ-SRC-01)"
    )
    assert problem_lines(source_stopped())[0] == (
        "nothing is captured since 1 min 35 s ago (FRZ-SRC-03)"
    )
    assert not any(each.startswith("source") for each in status_lines(merge_only()))
    copying = replace(SCENARIOS["copying"]())
    assert any("reading paused" in each for each in status_lines(copying))


def test_the_token_is_sent_and_never_shown(document: Callable[..., Path], capsys: Capture) -> None:
    status = replace(running(), errors={f"token {TOKEN}": 1})
    with served(lambda: status, token=TOKEN) as address:
        assert main(["status", "-c", str(document(address, token=TOKEN)), "-o", "json"]) == 0
        assert TOKEN not in capsys.readouterr().out
        for token in (None, "another"):
            code = main(["status", "-c", str(document(address, token=token))])
            assert code == ExitCode.USAGE
            said = capsys.readouterr().err
            assert "does not take the token of this configuration" in said
            assert "Next: set telemetry.token" in said


def test_a_server_on_every_interface_is_queried_on_loopback(
    document: Callable[..., Path], capsys: Capture
) -> None:
    with served(running, token=TOKEN, listen="0.0.0.0:0") as address:
        port = address.rpartition(":")[2]
        assert main(["status", "-c", str(document(f":{port}", token=TOKEN))]) == ExitCode.DONE
    assert "Following 5 tables" in capsys.readouterr().out


@pytest.mark.usefixtures("no_jvm")
def test_when_no_process_answers_the_lake_is_read(
    document: Callable[..., Path], capsys: Capture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    assert main(["status", "-c", str(document(address))]) == ExitCode.FAILED
    said = capsys.readouterr().err.splitlines()
    assert said[0] == f"no process answers at {address}; reading the lake instead"
    assert "Java" in said[1]
    assert main(["status", "-c", str(document("127.0.0.1:0"))]) == ExitCode.FAILED
    assert "lets the system choose a port" in capsys.readouterr().err
    assert main(["status", "-c", str(document(address, pages="false"))]) == ExitCode.FAILED
    assert "telemetry.pages is false" in capsys.readouterr().err


@pytest.mark.usefixtures("no_jvm")
@pytest.mark.parametrize(
    ("code", "body", "said"),
    [
        (404, b"Not Found", "serves no status"),
        (500, b"", "answers with 500"),
        (200, b"<html>", "is no status that this release can read"),
        (200, b'{"format": 9}', "is no status that this release can read"),
        (200, json.dumps(status_to_json(replace(running(), pipeline="other"))).encode(),
         "another pipeline answers"),
    ],
)  # fmt: skip
def test_what_is_not_our_process_is_not_believed(
    code: int, body: bytes, said: str, document: Callable[..., Path], capsys: Capture
) -> None:
    class OtherServer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(code)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), OtherServer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        main(["status", "-c", str(document(f"127.0.0.1:{server.server_port}"))])
        server.shutdown()
        thread.join()
    assert said in capsys.readouterr().err


def test_watching_off_a_terminal_wants_json(document: Callable[..., Path], capsys: Capture) -> None:
    assert main(["status", "--watch", "-c", str(document("127.0.0.1:1"))]) == ExitCode.USAGE
    assert "Next: add -o json" in capsys.readouterr().err


def test_watching_prints_a_line_whenever_something_changes(
    document: Callable[..., Path], capsys: Capture
) -> None:
    shown = [running()]

    def pass_time() -> None:
        shown[0] = replace(shown[0], at=shown[0].at.replace(microsecond=5))

    def stop_a_table() -> None:
        shown[0] = stopped()

    with served(lambda: shown[0]) as address:
        code = show_status(
            Invocation(environ={}, document=document(address), output=OutputFormat.JSON),
            watch=True,
            clock=Impatient(pass_time, stop_a_table, pass_time),
        )
    assert code == ExitCode.DONE
    lines = capsys.readouterr().out.splitlines()
    assert [status_from_json(json.loads(line)).tables for line in lines] == [
        running().tables,
        stopped().tables,
    ]


def test_watching_waits_for_a_process_that_is_away(
    document: Callable[..., Path], capsys: Capture
) -> None:
    code = show_status(
        Invocation(environ={}, document=document("127.0.0.1:1"), output=OutputFormat.JSON),
        watch=True,
        clock=Impatient(lambda: None, lambda: None),
    )
    assert code == ExitCode.DONE
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == ["no process answers at 127.0.0.1:1; waiting for one"]


def test_a_reader_who_has_seen_enough_ends_it(document: Callable[..., Path]) -> None:
    numbers = count()
    with served(lambda: replace(running(), errors={"FRZ-SRC-01": next(numbers)})) as address:
        arguments = ["status", "--watch", "-o", "json", "-c", str(document(address))]
        program = f"import sys; from frazil.cli.main import main; sys.exit(main({arguments!r}))"
        with subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as watching:
            assert watching.stdout is not None
            assert watching.stderr is not None
            assert watching.stdout.readline().startswith(b"{")
            watching.stdout.close()
            assert watching.wait(60) == ExitCode.DONE
            assert watching.stderr.read() == b""


def test_on_a_terminal_it_repaints_until_ctrl_c(document: Callable[..., Path]) -> None:
    shown = [running()]
    terminal, inner = pty.openpty()
    painted = b""
    with served(lambda: shown[0]) as address:
        arguments = ["status", "--watch", "-c", str(document(address))]
        # In the background Ctrl-C is ignored, and the child would inherit that.
        program = (
            "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
            f"from frazil.cli.main import main; sys.exit(main({arguments!r}))"
        )
        with subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=inner,
            stderr=inner,
            stdin=inner,
            env={**os.environ, "TERM": "xterm"},
        ) as watching:
            os.close(inner)
            while b"Following 5 tables" not in painted:
                painted += os.read(terminal, 65536)
            shown[0] = stopped()
            while b"frazil resync public.invoices" not in painted:
                painted += os.read(terminal, 65536)
            watching.send_signal(signal.SIGINT)
            # On Linux the end of a terminal is an error.
            with suppress(OSError):
                while more := os.read(terminal, 65536):
                    painted += more
            assert watching.wait(60) == ExitCode.DONE
    os.close(terminal)
    assert painted.count(b"\x1b[?1049h") == painted.count(b"\x1b[?1049l") == 1
    assert b"Traceback" not in painted


def test_the_screen_shows_the_last_state_without_an_answer() -> None:
    console = Console(width=160, height=60, file=io.StringIO(), force_terminal=True)
    with Screen(console) as screen:
        screen.show(None, "no process answers at 127.0.0.1:9093")
        screen.show(stopped(), "no process answers at 127.0.0.1:9093")
    painted = console.file.getvalue()  # type: ignore[attr-defined]
    assert "no process answers at 127.0.0.1:9093" in painted
    assert "frazil resync public.invoices" in painted
    assert "\x1b[?1049h" in painted
    assert "\x1b[?1049l" in painted


def test_asking_a_process_loads_no_spark(document: Callable[..., Path]) -> None:
    with served(running) as address:
        program = (
            "import sys; from frazil.cli.main import main; "
            f"main(['status', '-c', {str(document(address))!r}]); "
            "heavy = {'pyspark', 'pyarrow', 'rich', 'starlette'} & set(sys.modules); "
            "sys.exit(str(heavy) if heavy else 0)"
        )
        finished = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=False
        )
    assert finished.returncode == 0, finished.stderr
    assert "Following 5 tables" in finished.stdout
