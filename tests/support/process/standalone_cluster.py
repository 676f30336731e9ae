"""A cluster of Spark's own kind, its workers on different addresses of this machine.

Spark runs no speculative copy of a task on the host that has the task already, so that executors
of a local cluster, which share one host, never get one.
"""

from __future__ import annotations

import os
import socket
import subprocess
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pyspark

from frazil.clients.spark.java import find_java
from frazil.hooks import FAILPOINTS_VARIABLE, SystemClock
from tests.support.process.jvms import QUICK_JAVA
from tests.support.process.pipeline_process import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WORKERS = ("127.0.0.1", "127.0.0.2")
# A JVM on a busy machine may take its time.
PATIENCE = 120
# Of our environment, what a machine has of its own. Nothing that would lead to this checkout.
_OF_A_MACHINE = ("HOME", "LANG", "PATH", "TMPDIR")
# In a namespace of its own a process has other files where these folders are: none.
_WITHOUT = 'for each in $HIDDEN; do mount -t tmpfs none "$each" || exit 1; done; exec "$@"'


@dataclass(frozen=True)
class ClusterWorker:
    """A worker; its tasks wait, with their files written, while ``gate`` exists."""

    folder: Path
    process: psutil.Process

    @property
    def gate(self) -> Path:
        return self.folder / "gate"

    @property
    def holds_a_task(self) -> bool:
        """Whether a task has come to the gate."""
        return (self.folder / "gate.reached").exists()

    def forget_tasks(self) -> None:
        """What has come to the gate before does not count."""
        (self.folder / "gate.reached").unlink(missing_ok=True)

    def executor(self) -> psutil.Process:
        """The JVM of its executor."""
        (found,) = filter(_is_executor, self.process.children(recursive=True))
        return found


@dataclass(frozen=True)
class StandaloneCluster:
    """The master's address, and the workers."""

    master: str
    workers: tuple[ClusterWorker, ...]


@contextmanager
def standalone_cluster(folder: Path, *, hidden: Sequence[Path] = ()) -> Iterator[StandaloneCluster]:
    """A master and two workers of one core each, who see nothing of the folders ``hidden``."""
    with ExitStack() as stack:
        port = free_port()
        master = f"spark://127.0.0.1:{port}"
        address = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        stack.enter_context(_running(folder / "master", "master.Master", address, hidden))
        _wait_for(port)
        workers = []
        for number, host in enumerate(WORKERS):
            own = folder / f"worker{number}"
            limits = ("--cores", "1", "--memory", "1g", "--work-dir", str(own / "work"))
            arguments = ("--host", host, "--webui-port", "0", *limits, master)
            running = _running(own, "worker.Worker", arguments, hidden)
            workers.append(ClusterWorker(own, stack.enter_context(running)))
        yield StandaloneCluster(master, tuple(workers))


def _is_executor(process: psutil.Process) -> bool:
    # Processes of tasks come and go meanwhile.
    with suppress(psutil.Error):
        return "CoarseGrainedExecutorBackend" in " ".join(process.cmdline())
    return False


@contextmanager
def _running(
    folder: Path, name: str, arguments: Sequence[str], hidden: Sequence[Path]
) -> Iterator[psutil.Process]:
    folder.mkdir(parents=True)
    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    environment = {
        **{each: os.environ[each] for each in _OF_A_MACHINE if each in os.environ},
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_DIRS": str(folder),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
        # Executors have it from their worker.
        FAILPOINTS_VARIABLE: f"file.closed=hold({folder / 'gate'})",
        "HIDDEN": " ".join(map(str, hidden)),
    }
    command = (str(program), f"org.apache.spark.deploy.{name}", *arguments)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            (*_alone(hidden), *command), cwd=folder, env=environment, stdout=log, stderr=log
        )
        try:
            yield psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait(PATIENCE)


def _alone(hidden: Sequence[Path]) -> tuple[str, ...]:
    """Begins a command whose process has a view of its own on the files."""
    if not hidden:
        return ()
    user = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    return ("unshare", "--mount", *user, "sh", "-c", _WITHOUT, "sh")


def _wait_for(port: int) -> None:
    clock = SystemClock()
    deadline = clock.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            if clock.monotonic() > deadline:
                raise
            clock.sleep(0.1)
        else:
            return
