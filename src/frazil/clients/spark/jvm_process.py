"""The JVM of a session of ours as a process: it starts alone, and never outlives us.

PySpark's own launch leaves a JVM behind when it is interrupted: it removes the folder in which the
JVM is about to write where it listens, whereupon the JVM fails halfway and stays. And a JVM that is
signalled together with us, by a terminal or a supervisor, takes away what we need to end well.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyspark.find_spark_home import _find_spark_home

if TYPE_CHECKING:
    from collections.abc import Mapping

_POLL_SECONDS = 0.05
_LENGTH = struct.Struct("!i")
# The signals of terminals and supervisors; Java leaves alone what is ignored when it starts.
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class ListeningJvm(NamedTuple):
    """A JVM that waits for us, and how to connect to it."""

    process: subprocess.Popen[bytes]
    port: int
    secret: str


def start_jvm(arguments: str, environment: Mapping[str, str], output: int) -> ListeningJvm | None:
    """Start ``spark-submit`` with these arguments; None when it ended before it listened.

    The JVM ends when its standard input does, when we close it or are gone.
    """
    folder = tempfile.mkdtemp(prefix="frazil-jvm-")
    connection_file = Path(folder, "connection")
    home = Path(str(_find_spark_home()))  # type: ignore[no-untyped-call]
    command = [str(home / "bin" / "spark-submit"), *shlex.split(arguments)]
    # Should this be interrupted, the folder stays: the JVM writes there, then ends with its input.
    process = subprocess.Popen(  # noqa: S603 - Spark's own script
        command,
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=output,
        env={
            **environment,
            "SPARK_CONNECT_MODE": "0",
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection_file),
        },
        start_new_session=True,
        preexec_fn=_ignore_signals,  # noqa: PLW1509 - as PySpark itself does
    )
    try:
        listening = _wait_for(process, connection_file)
    except BaseException:
        kill_jvm(process)
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if listening is None:
        kill_jvm(process)
        return None
    return ListeningJvm(process, *listening)


def kill_jvm(process: subprocess.Popen[bytes]) -> None:
    """End it now, with the scripts that start it."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    if process.stdin is not None:
        process.stdin.close()
    process.wait()


def _wait_for(process: subprocess.Popen[bytes], connection_file: Path) -> tuple[int, str] | None:
    """The port that it listens on, and its secret."""
    while not connection_file.is_file():
        if process.poll() is not None:
            return None
        time.sleep(_POLL_SECONDS)  # noqa: TID251 - waits for another process
    content = connection_file.read_bytes()
    (port,) = _LENGTH.unpack_from(content)
    return port, content[2 * _LENGTH.size :].decode()


def _ignore_signals() -> None:
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
