"""Start, watch and end one service process through its keeper."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from frazil.demo.services import keeper
from frazil.errors import ServiceError
from frazil.hooks import Clock, Failpoint, SystemClock, failpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from frazil.demo.services.keeper import KeeperOrder
    from frazil.demo.services.workspace import Account

# Two busy cores and a cold disk: the slowest start seen was a tenth of this.
START_SECONDS = 60.0

# Imperceptible, and few enough probes not to slow the service down.
_READY_POLL_SECONDS = 0.02

# What a keeper may need beyond the grace it gives: the kill, the reaping, removing a folder.
_KEEPER_SECONDS = 15.0

# A failing service logs the reason last; three lines also include the cause before it.
_LAST_LINES = 3
_LAST_LINE_LENGTH = 300
_LOG_TAIL_BYTES = 16_384
_STACK_FRAME = re.compile(r"\s+(at |\.\.\. \d+ (more|common))|goroutine \d+")
# etcd writes JSON, with the stack in its last field.
_STACK_FIELD = re.compile(r',"stacktrace":.*')


@dataclass(frozen=True, slots=True)
class Launch:
    """How one service is started and ended; secrets belong into ``environment``, never elsewhere.

    ``leftovers`` are files of a run that the next one must not find; ``discard`` is
    what the keeper removes, with them, if the parent dies unexpectedly.
    """

    name: str
    command: tuple[str, ...]
    folder: Path
    log: Path
    environment: Mapping[str, str] = field(repr=False)
    stop_signal: signal.Signals = signal.SIGTERM
    # A clean stop of the slowest service takes 2 s; past this it hangs.
    grace_seconds: float = 8.0
    account: Account | None = None
    leftovers: tuple[Path, ...] = ()
    discard: tuple[Path, ...] = ()


class GuardedProcess:
    """A process that cannot outlive this one."""

    def __init__(self, launch: Launch) -> None:
        """Start it. Raises ServiceError when the program cannot be executed."""
        self._launch = launch
        self.pid = 0
        with launch.log.open("ab") as log:
            self._keeper = subprocess.Popen(  # noqa: S603 - our own script under our own Python
                [sys.executable, "-I", "-S", keeper.__file__, launch.name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                # Ctrl-C in the terminal is for the parent, which then ends its services in order.
                start_new_session=True,
            )
        try:
            self.pid = self._take_order()
            failpoint(Failpoint.SERVICE_SPAWNED)
        except BaseException:
            self.kill()
            raise

    @property
    def status(self) -> int | None:
        """The exit status, or None while it runs."""
        return self._keeper.poll()

    def wait(self, seconds: float) -> int | None:
        """The exit status once it ended by itself, or None if that takes longer."""
        with suppress(subprocess.TimeoutExpired):
            return self._keeper.wait(seconds)
        return None

    def stop(self) -> None:
        """Ask it to end, and kill it if it does not."""
        self._end(keeper.STOP)

    def kill(self) -> None:
        """End it, and everything it started, as a crash would."""
        self._end(keeper.KILL)

    def _end(self, request: bytes) -> None:
        stdin, stdout = self._keeper.stdin, self._keeper.stdout
        if stdin is None or stdout is None:
            return
        with suppress(BrokenPipeError, ValueError):
            stdin.write(request)
            stdin.flush()
        try:
            self._keeper.wait(self._launch.grace_seconds + _KEEPER_SECONDS)
        except subprocess.TimeoutExpired as error:
            message = f"{self._launch.name} (process {self.pid}) cannot be ended."
            raise ServiceError(message) from error
        finally:
            with suppress(BrokenPipeError):
                stdin.close()
            stdout.close()

    def _take_order(self) -> int:
        stdin, stdout = self._keeper.stdin, self._keeper.stdout
        if stdin is None or stdout is None:
            raise ServiceError("the keeper has no pipes.")
        with suppress(BrokenPipeError):
            stdin.write(json.dumps(_order(self._launch)).encode() + b"\n")
            stdin.flush()
        answer = json.loads(stdout.readline() or "{}")
        if "pid" not in answer:
            problem = answer.get("error", "its keeper died")
            message = f"{self._launch.name} cannot be executed: {problem}."
            raise ServiceError(message)
        return int(answer["pid"])


class Service:
    """One service that can be stopped, killed and started again in the same folder.

    ``ready`` gets the process number and says whether the service does its job.
    """

    def __init__(
        self, launch: Launch, ready: Callable[[int], bool], *, clock: Clock | None = None
    ) -> None:
        self.launch = launch
        self._ready = ready
        self._clock = clock or SystemClock()
        self._process: GuardedProcess | None = None

    @property
    def pid(self) -> int | None:
        """The process number while it runs."""
        process = self._process
        return process.pid if process is not None and process.status is None else None

    def start(self) -> None:
        """Start it and wait until it does its job; does nothing if it runs.

        Raises ServiceError, with nothing left running, when that does not come about.
        """
        if self.pid is not None:
            return
        self.stop()
        self._remove_traces()
        process = GuardedProcess(self.launch)
        try:
            self._await_ready(process)
        except BaseException:
            process.kill()
            self._remove_traces()
            raise
        self._process = process

    def stop(self) -> None:
        """End it cleanly; does nothing if it does not run."""
        process, self._process = self._process, None
        if process is not None:
            process.stop()
            self._remove_traces()

    def kill(self) -> None:
        """End it as a crash would (SIGKILL); does nothing if it does not run."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            self._remove_traces()

    def restart(self) -> None:
        """Stop it if it runs, then start it on the same data and the same port."""
        self.stop()
        self.start()

    def _remove_traces(self) -> None:
        for path in self.launch.leftovers:
            path.unlink(missing_ok=True)

    def _await_ready(self, process: GuardedProcess) -> None:
        deadline = self._clock.monotonic() + START_SECONDS
        while not self._ready(process.pid):
            status = process.status
            if status is not None:
                raise failure(self.launch, how_it_ended(status))
            if self._clock.monotonic() > deadline:
                raise failure(self.launch, f"was not ready after {START_SECONDS:.0f} seconds")
            self._clock.sleep(_READY_POLL_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningService:
    """A service that runs; after ``kill`` or ``stop`` it starts again where it was."""

    log: Path
    service: Service = field(repr=False, compare=False)

    def stop(self) -> None:
        """Shut down in order; open sessions are ended."""
        self.service.stop()

    def kill(self) -> None:
        """Crash: SIGKILL to the server and all its processes."""
        self.service.kill()

    def restart(self) -> None:
        """Start again, after a crash or a stop, on the same data and ports."""
        self.service.restart()


def failure(launch: Launch, ending: str) -> ServiceError:
    """One sentence: which service, how it ended, where its log is, and its last lines."""
    last = last_lines(launch.log)
    said = f"; it last said: {last}" if last else ", which is empty"
    return ServiceError(f"{launch.name} {ending}; its log is {launch.log}{said}")


def how_it_ended(status: int) -> str:
    """The description of an exit status."""
    if status < 0:
        return f"lost its keeper to signal {-status}"
    # The shell's convention, which the keeper follows.
    number = status - 128
    if number in signal.valid_signals():
        return f"was ended by {signal.Signals(number).name}"
    return f"exited with status {status}"


def last_lines(log: Path) -> str:
    """The last lines of a log, without stack frames, as one line."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LOG_TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    lines = [line for line in text.splitlines() if line.strip() and not _STACK_FRAME.match(line)]
    said = (_STACK_FIELD.sub("}", line.strip()) for line in lines[-_LAST_LINES:])
    return " | ".join(line[:_LAST_LINE_LENGTH] for line in said)


def _order(launch: Launch) -> KeeperOrder:
    account = launch.account
    return {
        "command": list(launch.command),
        "environment": dict(launch.environment),
        "folder": str(launch.folder),
        "log": str(launch.log),
        "stop_signal": int(launch.stop_signal),
        "grace_seconds": launch.grace_seconds,
        "uid": account.uid if account else None,
        "gid": account.gid if account else None,
        "discard": [str(path) for path in (*launch.leftovers, *launch.discard)],
    }
