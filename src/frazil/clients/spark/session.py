"""Sessions are built, joined and ended here; all other code is given one.

``open_session`` starts a JVM of our own, or uses the one that ``spark-submit`` started us with.
``attach_session`` joins a session that belongs to the caller and leaves it running.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import string
import subprocess
import sys
import tempfile
import threading
import warnings
from collections import deque
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeAlias

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from frazil.clients.spark.jars import ICEBERG_RUNTIME, ensure_jars, missing_jars
from frazil.clients.spark.java import JavaRuntime, find_java
from frazil.clients.spark.jvm_process import kill_jvm, start_jvm
from frazil.clients.spark.session_plan import (
    PROFILE_KEY,
    REDACTION_KEY,
    SessionPlan,
    joined_patterns,
    plan_session,
)
from frazil.errors import RuntimeMissingError
from frazil.hooks import Failpoint, failpoint
from frazil.telemetry.jvm_log import JvmLog
from frazil.telemetry.progress import doing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from py4j.java_gateway import JavaGateway

    from frazil.config import Config

# What ``open_session`` gives, for those who only hand it on.
Session: TypeAlias = SparkSession

_LOG_SETTINGS = Path(__file__).with_name("log4j2.xml")
# Named, not imported: it imports packages above this one.
_WORKER_DAEMON = "frazil.clients.spark.worker_daemon"
# Spark's own name for what setJobDescription sets.
_DESCRIPTION = "spark.job.description"
_ICEBERG_PROBE = "org.apache.iceberg.spark.SparkCatalog"

# What a properties file takes verbatim.
_PLAIN = frozenset(string.ascii_letters + string.digits + "._-/")

# A JVM that has not ended within this time after the request is killed.
_EXIT_SECONDS = 10
# A stack trace of the JVM's and what came before it.
_RECENT_LINES = 200
_IS_CHATTER = re.compile(r"WARNING|\s|Caused by|\{")


@contextmanager
def open_session(config: Config) -> Iterator[SparkSession]:
    """A session for this configuration; leaving stops it and all that was started for it."""
    plan = plan_session(config)
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        with _session_of_submit(plan) as session:
            yield session
        return
    _refuse_second_session()
    with _own_session(plan) as session:
        failpoint(Failpoint.SESSION_STARTED)
        yield session


def attach_session(session: SparkSession, config: Config) -> SparkSession:
    """Make the configured catalog known to a session of the caller's, who goes on owning it.

    A catalog of that name which the session already has stays as the caller set it.
    """
    check_iceberg(session)
    plan = plan_session(config)
    if session.conf.get(plan.catalog_key, None) is None:
        for key, value in plan.catalog_conf.items():
            session.conf.set(key, value)
    return session


def check_iceberg(session: SparkSession) -> None:
    """RuntimeMissingError unless the session has Iceberg on its class path."""
    jvm = session.sparkContext._gateway.jvm  # type: ignore[union-attr]  # noqa: SLF001
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        loader.loadClass(_ICEBERG_PROBE)
    except Py4JJavaError as error:
        jar = ICEBERG_RUNTIME[0]
        message = "this Spark session has no Iceberg on its class path."
        raise RuntimeMissingError(
            message,
            next_step=f"start it with --packages {jar.organisation}:{jar.name}:{jar.revision}",
        ) from error


@contextmanager
def job_description(session: SparkSession, text: str) -> Iterator[None]:
    """Jobs of this thread are called so in Spark's own pages; afterwards as they were before."""
    context = session.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    context.setJobDescription(text)
    try:
        yield
    finally:
        # A session that has ended takes none any more.
        with suppress(Py4JError, OSError):
            # None takes it away, which its declared types do not know.
            context.setLocalProperty(_DESCRIPTION, before)  # type: ignore[arg-type]


def is_alive(session: SparkSession) -> bool:
    """Whether the JVM we launched still runs; one that we did not launch is assumed to."""
    process = getattr(session.sparkContext._gateway, "proc", None)  # noqa: SLF001
    return process is None or process.poll() is None


@contextmanager
def _session_of_submit(plan: SessionPlan) -> Iterator[SparkSession]:
    """With spark-submit's JVM: it chose master and jars, the rest is configured here."""
    # Connected first, so that the settings given to spark-submit are seen and stay.
    SparkContext._ensure_initialized()  # noqa: SLF001
    conf = SparkConf()
    # What is secret to the caller stays so, and our secrets are added.
    hidden = joined_patterns(conf.get(REDACTION_KEY), plan.conf[REDACTION_KEY])
    for key, value in plan.conf.items():
        conf.setIfMissing(key, value)
    conf.set(REDACTION_KEY, hidden)
    session = SparkSession.builder.config(conf=conf).getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def _refuse_second_session() -> None:
    if SparkContext._active_spark_context is not None:  # noqa: SLF001 - there is no public question
        raise RuntimeMissingError(
            "a Spark session is already running in this process.",
            next_step="pass it to frazil instead of opening a second one",
        )


@contextmanager
def _own_session(plan: SessionPlan) -> Iterator[SparkSession]:
    java = find_java()
    files = _provided(plan)
    # Private to this user: settings with secrets, and rows that Spark spills.
    with tempfile.TemporaryDirectory(prefix="frazil-session-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        conf = _launch_conf(plan, java, files, folder)
        log = JvmLog()
        output = _JvmOutput(log.log_line)
        gateway: JavaGateway | None = None
        try:
            with doing("starting Spark"), _launch_environment(plan, java):
                gateway = _launch(conf, plan.master, output, folder)
                session = _create_session(gateway, plan, output)
            try:
                yield session
            finally:
                _expect_end(gateway, log)
                with doing("stopping Spark"):
                    _stop(session)
        finally:
            _expect_end(gateway, log)
            with doing("stopping Spark"):
                _end_jvm(gateway)
            output.close()


def _provided(plan: SessionPlan) -> tuple[Path, ...]:
    """The plan's jars; fetched first where nobody has run ``frazil setup``."""
    if missing := missing_jars(*plan.jars):
        with doing(f"fetching {len(missing)} jars"):
            return ensure_jars(*plan.jars)
    return ensure_jars(*plan.jars)


def _launch_conf(
    plan: SessionPlan, java: JavaRuntime, jars: tuple[Path, ...], folder: Path
) -> dict[str, str]:
    """The plan's settings together with what only this machine knows."""
    conf = dict(plan.conf)
    if plan.is_local and plan.worker_python is None and "PYSPARK_PYTHON" not in os.environ:
        # Workers are forks of this installation, so that its own daemon can be theirs.
        conf.setdefault("spark.python.daemon.module", _WORKER_DAEMON)
    options = (
        *java.options,
        f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}",
        # Libraries are unpacked there, and loaded; and Spark's own files, unless spark.local.dir
        # says otherwise, which Spark would warn of.
        f"-Djava.io.tmpdir={shlex.quote(str(folder))}",
    )
    theirs = conf.get("spark.driver.extraJavaOptions", "")
    conf["spark.driver.extraJavaOptions"] = " ".join(filter(None, (*options, theirs)))
    given = filter(None, conf.get("spark.jars", "").split(","))
    conf["spark.jars"] = ",".join((*map(str, jars), *given))
    return conf


@contextmanager
def _launch_environment(plan: SessionPlan, java: JavaRuntime) -> Iterator[None]:
    """What Spark's launch scripts and its context take from the environment and nowhere else."""
    wanted: dict[str, str | None] = {"JAVA_HOME": str(java.home)}
    if "PYSPARK_PYTHON" not in os.environ:
        # Else workers run whatever python3 is on PATH, without pyarrow and without us.
        wanted["PYSPARK_PYTHON"] = plan.worker_python or sys.executable
    if PROFILE_KEY in plan.conf:
        wanted["AWS_PROFILE"] = plan.conf[PROFILE_KEY]
    if plan.is_local:
        # Executors on this machine must not be sent to its outer address, or listen there.
        wanted |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": None}
    with _environment(wanted):
        yield


@contextmanager
def _environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    _apply_environment(changes)
    try:
        yield
    finally:
        _apply_environment(before)


def _apply_environment(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _launch(conf: Mapping[str, str], master: str, output: _JvmOutput, folder: Path) -> JavaGateway:
    """Start the JVM. Settings travel in a private file: a command line is visible to all users."""
    settings = folder / "session.properties"
    settings.touch(mode=0o600)
    settings.write_text(_properties(conf), encoding="ascii")
    submit = f"--properties-file {shlex.quote(str(settings))} --load-spark-defaults"
    try:
        found = start_jvm(f"{submit} pyspark-shell", os.environ, output.descriptor)
    finally:
        settings.unlink()
    if found is None:
        raise _not_started(master, output.complaint())
    try:
        connection = {
            "PYSPARK_GATEWAY_PORT": str(found.port),
            "PYSPARK_GATEWAY_SECRET": found.secret,
        }
        with _environment(connection):
            gateway: JavaGateway = launch_gateway()  # type: ignore[no-untyped-call]
    except BaseException:
        kill_jvm(found.process)
        raise
    gateway.proc = found.process
    return gateway


def _properties(conf: Mapping[str, str]) -> str:
    """Java's properties format with everything unusual escaped, so that any value survives."""
    return "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in conf.items())


def _escaped(text: str) -> str:
    units = text.encode("utf-16-be")
    codes = (int.from_bytes(units[i : i + 2], "big") for i in range(0, len(units), 2))
    return "".join(chr(code) if chr(code) in _PLAIN else f"\\u{code:04x}" for code in codes)


def _create_session(gateway: JavaGateway, plan: SessionPlan, output: _JvmOutput) -> SparkSession:
    try:
        with _own_interrupts():
            context = SparkContext(gateway=gateway, conf=SparkConf(_jvm=gateway.jvm))
        return SparkSession(context)
    except Py4JError as error:
        raise _not_started(plan.master, _reason(error, output)) from error


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Keep our handling of Ctrl-C: a Spark context installs its own."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _not_started(master: str, reason: str) -> RuntimeMissingError:
    message = f"Spark did not start with master {master}: {reason.rstrip('.')}."
    return RuntimeMissingError(
        message, next_step="correct spark.master or spark.conf in the configuration"
    )


def _reason(error: Py4JError, output: _JvmOutput) -> str:
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception.getMessage()).partition("\n")[0]
    return output.complaint()


def _stop(session: SparkSession) -> None:
    if not is_alive(session):
        # The JVM is gone; what PySpark remembers of it must go too.
        with suppress(Py4JError, OSError):
            session.stop()
        SparkContext._active_spark_context = None  # noqa: SLF001
        return
    context = session.sparkContext
    master, application = str(context.master), context.applicationId
    with suppress(Py4JError, OSError), warnings.catch_warnings():
        # It may end, or we were interrupted, during the call; the JVM is ended in any case.
        warnings.simplefilter("ignore", RuntimeWarning)
        session.stop()
    if master.startswith("local-cluster"):
        # Its workers keep their folders inside the installed package, whatever is configured.
        home = Path(launch_gateway.__code__.co_filename).parent
        shutil.rmtree(home / "work" / application, ignore_errors=True)


def _expect_end(gateway: JavaGateway | None, log: JvmLog) -> None:
    """Unless it has ended by itself, which it may have given a reason for."""
    if gateway is None or gateway.proc.poll() is None:
        log.expect_end()


def _end_jvm(gateway: JavaGateway | None) -> None:
    """End the JVM we launched, so that nothing outlives the session and a next one starts clean."""
    if gateway is None:
        return
    process = gateway.proc
    try:
        with suppress(Py4JError, OSError):
            gateway.shutdown()
        process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_EXIT_SECONDS)
    finally:
        # Also after a second Ctrl-C.
        kill_jvm(process)
    SparkContext._gateway = None  # noqa: SLF001 - PySpark keeps it for a JVM that lives on
    SparkContext._jvm = None  # noqa: SLF001


class _JvmOutput:
    """Everything the JVM and its Python workers print, line by line to one receiver."""

    def __init__(self, receive: Callable[[str], None]) -> None:
        reading, self.descriptor = os.pipe()
        self._closed = False
        self._receive = receive
        self._recent: deque[str] = deque(maxlen=_RECENT_LINES)
        lines = os.fdopen(reading, encoding="utf-8", errors="replace")
        self._thread = threading.Thread(
            target=self._pump, args=(lines,), name="spark-output", daemon=True
        )
        self._thread.start()

    def _pump(self, lines: IO[str]) -> None:
        with lines:
            for line in lines:
                text = line.rstrip()
                self._recent.append(text)
                self._receive(text)

    def complaint(self) -> str:
        """Why the JVM ended: its first line that is neither a warning nor part of a trace."""
        self.close()
        said = (line for line in self._recent if line and not _IS_CHATTER.match(line))
        return next(said, "it printed nothing").removeprefix('Exception in thread "main" ')

    def close(self) -> None:
        """Let the reader finish what is in the pipe; may be called again."""
        if not self._closed:
            self._closed = True
            os.close(self.descriptor)
        self._thread.join(_EXIT_SECONDS)
