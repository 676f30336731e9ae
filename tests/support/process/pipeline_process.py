"""``frazil`` as its users have it: a process in a folder with a document, seen from outside."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import URLError
from urllib.request import urlopen

import psutil
from prometheus_client.parser import text_string_to_metric_families

from frazil.hooks import SystemClock

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Mapping

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = "import sys; from frazil.cli.main import main; sys.exit(main())"
# Far above what a busy machine needs for any of it.
PATIENCE_SECONDS = 600.0
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}


def free_port() -> int:
    """A port that nobody listens at, as of now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


class PipelineProcess:
    """A folder with ``frazil.yaml``, in which ``frazil run`` may run, one at a time."""

    def __init__(
        self,
        folder: Path,
        port: int,
        *,
        program: tuple[str, ...] = (sys.executable, "-c", PROGRAM),
        environment: Mapping[str, str] = ENVIRONMENT,
    ) -> None:
        self.folder = folder
        self.environment = environment
        self._program = program
        self.address = f"http://127.0.0.1:{port}"
        self.log = folder / "pipeline.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """``frazil run``, or ``frazil`` with these words."""
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [*self._program, *(words or ("run",))],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self.process

    def send(self, number: signal.Signals) -> None:
        """To the process, and not to its children."""
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self) -> int:
        """How it ended."""
        assert self.process is not None
        return self.process.wait(PATIENCE_SECONDS)

    def end(self) -> None:
        """Leave nothing behind."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE_SECONDS)

    def jvm(self) -> psutil.Process:
        """The Java process of its session."""
        assert self.process is not None
        children = psutil.Process(self.process.pid).children(recursive=True)
        (found,) = (each for each in children if each.name() == "java")
        return found

    def command(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """``frazil`` with these words, typed in the folder."""
        return subprocess.run(
            [*self._program, *words],
            cwd=self.folder,
            env={**self.environment, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )

    def page(self, path: str) -> str:
        """What a browser or a scraper gets."""
        with urlopen(f"{self.address}{path}", timeout=60) as answer:  # noqa: S310 - our own server
            text: str = answer.read().decode()
            return text

    def metric(self, name: str, **labels: str) -> float | None:
        """The value of the series with exactly these labels, if it serves one."""
        for family in text_string_to_metric_families(self.page("/metrics")):
            for sample in family.samples:
                if sample.name == name and sample.labels == labels:
                    return sample.value
        return None

    def status(self) -> dict[str, object] | None:
        """What the process tells of itself; None while it tells nothing."""
        with suppress(OSError, URLError, ValueError):
            found: dict[str, object] = json.loads(self.page("/status"))
            return found
        return None

    def wait_until(self, is_so: Callable[[], bool], what: str) -> None:
        """Something becomes true, and the process goes on meanwhile."""
        clock = SystemClock()
        deadline = clock.monotonic() + PATIENCE_SECONDS
        while not is_so():
            self.require_alive()
            assert clock.monotonic() < deadline, f"not {what}: {self.output_tail()}"
            clock.sleep(0.2)

    def require_alive(self) -> None:
        """It has not ended."""
        assert self.process is not None
        status = self.process.poll()
        assert status is None, f"the pipeline ended with {status}: {self.output_tail()}"

    def output_tail(self) -> str:
        """The end of its log."""
        return self.log.read_text()[-3000:]

    def events(self, event: str) -> list[dict[str, object]]:
        """The lines of its log that tell of this."""
        lines = self.log.read_text().splitlines()
        found = [json.loads(line) for line in lines if line.startswith("{")]
        return [each for each in found if each["event"] == event]
