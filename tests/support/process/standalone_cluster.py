"""A cluster of Spark's own kind, its workers on different addresses of this machine.

Spark runs no speculative copy of a task on the host that has the task already, so that executors
of a local cluster, which share one host, never get one.
"""

from __future__ import annotations

import os
import socket
import subprocess
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from frazil.clients.spark.java import find_java
from frazil.hooks import SystemClock
from tests.support.process.jvms import QUICK_JAVA
from tests.support.process.pipeline_process import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

WORKERS = ("127.0.0.1", "127.0.0.2")
# A JVM on a busy machine may take its time.
PATIENCE = 120


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[str]:
    """The master's address; two workers of one core each."""
    with ExitStack() as stack:
        port = free_port()
        master = f"spark://127.0.0.1:{port}"
        address = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        stack.enter_context(_running(folder / "master", "master.Master", *address))
        _wait_for(port)
        for number, host in enumerate(WORKERS):
            own = folder / f"worker{number}"
            limits = ("--cores", "1", "--memory", "1g", "--work-dir", str(own / "work"))
            arguments = ("--host", host, "--webui-port", "0", *limits, master)
            stack.enter_context(_running(own, "worker.Worker", *arguments))
        yield master


@contextmanager
def _running(folder: Path, name: str, *arguments: str) -> Iterator[None]:
    folder.mkdir()
    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    environment = {
        **os.environ,
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_DIRS": str(folder),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
    }
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [program, f"org.apache.spark.deploy.{name}", *arguments],
            env=environment,
            stdout=log,
            stderr=log,
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait(PATIENCE)


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
