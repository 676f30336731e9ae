"""Guard one service process, so that it ends when its parent ends, however that happens.

Run as ``python -I -S keeper.py NAME``. The first line on standard input is the order, in JSON;
the answer is one line on standard output. From then on the line ``stop`` or ``kill`` ends the
service, and so does the end of the input, which is what the kernel makes of a parent that died.
The exit status is the service's own, or 128 plus the signal that ended it.

Standard library only and no imports from frazil: it must start in milliseconds, and from a file.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STOP = b"stop\n"
KILL = b"kill\n"

# <linux/prctl.h>
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

# A process forked from the parent may hold our input open after the parent died; asking for the
# parent's number this often bounds how long a service survives such a parent.
_PARENT_POLL_SECONDS = 1.0

# How long killed processes may take to vanish before we leave them to init.
_REAP_SECONDS = 5.0
# An orphan becomes our child a moment after its parent died, without a signal to us.
_REAP_POLL_SECONDS = 0.01

_CANNOT_START = 127
_SIGNAL_OFFSET = 128


class KeeperOrder(TypedDict):
    """What to run and how to end it."""

    command: list[str]
    environment: dict[str, str]
    folder: str
    log: str
    stop_signal: int
    grace_seconds: float
    uid: int | None
    gid: int | None
    discard: list[str]


class Reason(Enum):
    """Why the watch is over."""

    ENDED = auto()
    STOP = auto()
    KILL = auto()
    PARENT_GONE = auto()


class Keeper:
    """One service process and everything it leaves behind."""

    def __init__(self, order: KeeperOrder, parent: int) -> None:
        self._order = order
        self._parent = parent
        self._woken = _listen_for_signals()
        # Processes that the service forks into sessions of their own come back to us when it dies.
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        self._child = _spawn(order)
        self._status: int | None = None

    @property
    def pid(self) -> int:
        """The process number of the service."""
        return self._child.pid

    def run(self) -> int:
        """Watch until the service ends or must end; its exit status."""
        reason = self._watch()
        if reason in {Reason.STOP, Reason.PARENT_GONE}:
            self._send(self._order["stop_signal"])
            self._await(self._order["grace_seconds"])
        self._kill_all()
        if reason is Reason.PARENT_GONE or self._parent_is_gone():
            _discard(self._order["discard"])
        status = self._status if self._status is not None else -signal.SIGKILL
        return status if status >= 0 else _SIGNAL_OFFSET - status

    def _watch(self) -> Reason:
        while True:
            self._reap()
            if self._status is not None:
                return Reason.ENDED
            if os.getppid() != self._parent:
                return Reason.PARENT_GONE
            ready, _, _ = select.select([0, self._woken], [], [], _PARENT_POLL_SECONDS)
            reason = self._heard(ready)
            if reason is not None:
                return reason

    def _heard(self, ready: list[int]) -> Reason | None:
        if self._woken in ready and set(os.read(self._woken, 512)) - {signal.SIGCHLD}:
            return Reason.STOP
        if 0 not in ready:
            return None
        request = os.read(0, 512)
        if not request:
            return Reason.PARENT_GONE
        return Reason.KILL if KILL in request else Reason.STOP

    def _await(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._status is None and (left := deadline - time.monotonic()) > 0:
            self._doze(left)
            self._reap()

    def _kill_all(self) -> None:
        """End the service and whatever descends from it; nothing is left when this returns."""
        # The group first: on systems that do not hand orphans to us it is all we can reach.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signal.SIGKILL)
        deadline = time.monotonic() + _REAP_SECONDS
        while time.monotonic() < deadline:
            self._reap()
            left = tuple(_children())
            if self._status is not None and not left:
                return
            for pid in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            self._doze(_REAP_POLL_SECONDS)

    def _doze(self, seconds: float) -> None:
        ready, _, _ = select.select([self._woken], [], [], seconds)
        if ready:
            os.read(self._woken, 512)

    def _send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._child.pid, number)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self._child.pid:
                    self._status = os.waitstatus_to_exitcode(status)
                    self._child.returncode = self._status

    def _parent_is_gone(self) -> bool:
        if os.getppid() != self._parent:
            return True
        ready, _, _ = select.select([0], [], [], 0)
        return bool(ready) and not os.read(0, 512)


def _spawn(order: KeeperOrder) -> subprocess.Popen[bytes]:
    keeper = os.getpid()
    # Loaded here: between fork and exec nothing should be imported.
    prctl = _find_prctl()

    def die_with_keeper() -> None:
        # After the change of user, which would clear it. It follows the thread that forked: ours
        # is the only one.
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(_CANNOT_START)

    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return subprocess.Popen(  # noqa: S603 - the parent's own order
            order["command"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=order["folder"],
            env=order["environment"],
            user=order["uid"],
            group=order["gid"],
            extra_groups=[] if order["gid"] is not None else None,
            process_group=0,
            preexec_fn=die_with_keeper,  # noqa: PLW1509 - this process has no other thread
        )
    finally:
        os.close(log)


def _listen_for_signals() -> int:
    """A descriptor from which the numbers of arriving signals can be read."""
    woken, waker = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return woken


def _find_prctl() -> Callable[[int, int], object] | None:
    if not sys.platform.startswith("linux"):
        return None
    with contextlib.suppress(OSError, AttributeError):
        prctl: Callable[[int, int], object] = ctypes.CDLL(None).prctl
        return prctl
    return None


def _prctl(option: int, value: int) -> None:
    prctl = _find_prctl()
    if prctl is not None:
        prctl(option, value)


def _children() -> Iterator[int]:
    """Our children, with the orphans we adopted; nothing where there is no ``/proc``."""
    own = os.getpid()
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The name in the second field may hold anything, also spaces and brackets.
            _, parent, *_ = entry.read_bytes().rpartition(b")")[2].split()
            if int(parent) == own:
                yield int(entry.parent.name)


def _discard(paths: list[str]) -> None:
    for path in map(Path, paths):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                path.unlink()


def _read_order() -> KeeperOrder | None:
    line = bytearray()
    # Nothing follows the line until we have answered, so a chunk cannot hold more than the order.
    while not line.endswith(b"\n"):
        chunk = os.read(0, 65536)
        if not chunk:
            return None
        line += chunk
    order: KeeperOrder = json.loads(line)
    return order


def _answer(fields: dict[str, int | str]) -> None:
    # A parent that died meanwhile is noticed by the watch.
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(fields).encode() + b"\n")


def main() -> int:
    """Read one order and carry it out."""
    parent = os.getppid()
    order = _read_order()
    if order is None:
        return 0
    try:
        keeper = Keeper(order, parent)
    except (OSError, subprocess.SubprocessError) as error:
        _answer({"error": str(error)})
        return _CANNOT_START
    _answer({"pid": keeper.pid})
    return keeper.run()


if __name__ == "__main__":
    sys.exit(main())
