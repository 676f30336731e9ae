"""The jars Spark and the demo's catalog server run on: pinned here, and nowhere else.

They are fetched once per user with the Ivy that Spark brings along, checked against the checksums
below, whenever they are used as well, and from then on taken from the cache without any network.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from frazil.clients.cache import cache_directory, writing_to
from frazil.clients.private_folder import private_folder
from frazil.clients.spark.java import find_java
from frazil.errors import RuntimeMissingError
from frazil.hooks import Failpoint, failpoint
from frazil.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_log = get_logger(__name__)

# For companies that keep their own repository: an Ivy settings file, as Spark's own
# spark.jars.ivySettings takes it.
IVY_SETTINGS_VARIABLE = "FRAZIL_IVY_SETTINGS"

# The largest jar has 60 MB; a line too slow to bring them all in this time is as good as none.
_FETCH_TIMEOUT_SECONDS = 900

_MAVEN_NAMESPACE = "http://ant.apache.org/ivy/maven"
_RETRIEVE_PATTERN = "[artifact]-[revision](-[classifier]).[ext]"


@dataclass(frozen=True, slots=True)
class Jar:
    """One file by its Maven coordinates and checksum."""

    organisation: str
    name: str
    revision: str
    sha256: str
    classifier: str | None = None
    extension: str = "jar"

    @property
    def file_name(self) -> str:
        """The name the file has in the cache."""
        suffix = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.revision}{suffix}.{self.extension}"


ICEBERG_VERSION = "1.12.0"
_JETTY_VERSION = "12.1.8"


def _iceberg(name: str, sha256: str) -> Jar:
    return Jar("org.apache.iceberg", name, ICEBERG_VERSION, sha256)


def _jetty(name: str, sha256: str) -> Jar:
    return Jar("org.eclipse.jetty", name, _JETTY_VERSION, sha256)


ICEBERG_RUNTIME = (
    _iceberg(
        "iceberg-spark-runtime-4.1_2.13",
        "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
    ),
)
AWS_BUNDLE = (
    _iceberg(
        "iceberg-aws-bundle", "dd7e49ffa4ac9b215bed846581991259e3aec9bb2fa08d6cec029c46cd66d957"
    ),
)
SQLITE_DRIVER = (
    Jar(
        "org.xerial",
        "sqlite-jdbc",
        "3.50.3.0",
        "a3f53a2aa15ae9425a9e793bbe9c8e5288febeb4b65ef5c1a4e80d4c2045cf08",
    ),
)
POSTGRES_DRIVER = (
    Jar(
        "org.postgresql",
        "postgresql",
        "42.7.13",
        "6e0e4cc2d8cae902084f8a2b18728b073a6fd9d1f87c9d8bff8f298c18185b93",
    ),
)
# Iceberg's own REST servlet lives in the tests jar of iceberg-core, last published for 1.11.0; it
# runs on the 1.12.0 classes.
REST_SERVER = (
    _iceberg("iceberg-api", "d476a6989edfe3882a47ce0eaa3e53df4d589ef5e7bd0a16ff113ae570bca8b6"),
    _iceberg("iceberg-aws", "ec82373b4126e54f415768081926773b07c959eec14268e806c8e441324217a5"),
    _iceberg(
        "iceberg-bundled-guava",
        "8d27e319e3bc28f7f86e7fbd59f6758bfaa1f78d72d9f76aa93ad1f7cbd3ba34",
    ),
    _iceberg("iceberg-common", "18a43330e3c5eb712a9bf88e8f70441971851400efb4646f0b6512ac40c5f357"),
    _iceberg("iceberg-core", "d3bbb331b7a907e134958d21ecccd91a736049e00768e07579ff60855bf28352"),
    Jar(
        "org.apache.iceberg",
        "iceberg-core",
        "1.11.0",
        "4284719a5f0eb7db01e9f784a0ed4ca8bacf7d6f9951924143afc083428d8be3",
        classifier="tests",
    ),
    Jar(
        "org.eclipse.jetty.ee10",
        "jetty-ee10-servlet",
        _JETTY_VERSION,
        "c6251faae241b2b6879ce8fb9177366ca4793ff9356f60793b8d10a1f1fef404",
    ),
    _jetty("jetty-http", "32c351984fd74e7db9b3120f7aa43c034a9d7fe290386747ff318f4c4221d94b"),
    _jetty("jetty-io", "c45a68ceed3526f5ca0974768caa61f6683c3d5591a819fbcf3c0480a64ab245"),
    _jetty("jetty-security", "44add9ee95b955d96979cc74e32ec751ea807ebc0f5139eb13adcfc23712c58f"),
    _jetty("jetty-server", "71b8862a72305aebb65909b8b9f3c9a0c790ef3245c6056e56b48117aec238fe"),
    _jetty("jetty-session", "ebe84dd41942d7adda5f7d1304095d274e7915999451d848e887cbd409f947ea"),
    _jetty("jetty-util", "00432715f20c3ddc8d4fe3b01974253a7772f1830f7712da71af30348b01c822"),
    _jetty("jetty-xml", "0d8eef335d4bd1961e38861dce9128e0d65ba3a21d3e771ef4fa78045feb3516"),
    Jar(
        "jakarta.servlet",
        "jakarta.servlet-api",
        "6.0.0",
        "c034eb1afb158987dbb53a5fea0cadf611c8dae8daadd59c44d9d5ab70129cef",
    ),
    *SQLITE_DRIVER,
    Jar(
        "dev.failsafe",
        "failsafe",
        "3.3.2",
        "2c5dc879a6dac7ea3a7b29d795e27bd49b8e7908b05c2f3e56053c19d79850f5",
    ),
    Jar(
        "com.github.ben-manes.caffeine",
        "caffeine",
        "3.2.4",
        "9d9d2cfd681fd9272ded3d27c9930db12f89f732345975aa113ebc223bbf1224",
    ),
    Jar(
        "org.apache.httpcomponents.client5",
        "httpclient5",
        "5.6.4",
        "bdef5f8841145cd76c4c605ff301bc840eea0d5292332b7b892a93316c0d8ee1",
    ),
    Jar(
        "org.apache.httpcomponents.core5",
        "httpcore5",
        "5.4.3",
        "18bfbbabb478dfb67f31aeaf428c387f3c3df654582e1309f708ee1f3086830a",
    ),
    Jar(
        "org.apache.httpcomponents.core5",
        "httpcore5-h2",
        "5.4.3",
        "c7db7026b8e2dea39132b04a6069f6671e2858309b20a146ec5c7dd6ed73a0b6",
    ),
)

# What a pipeline may need, whatever its configuration says.
PRODUCTION_JARS = (ICEBERG_RUNTIME, AWS_BUNDLE, SQLITE_DRIVER, POSTGRES_DRIVER)
# What the demo needs: its catalog is a SQLite file.
DEMO_JARS = (ICEBERG_RUNTIME, SQLITE_DRIVER)
# Everything a checkout needs for its demo and tests.
EVERY_JAR = (*PRODUCTION_JARS, REST_SERVER)


def spark_jar_folder() -> Path:
    """The folder of Spark's own jars, inside the installed ``pyspark``."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise RuntimeMissingError("pyspark is not installed.", next_step="pip install frazil")
    return Path(spec.origin).parent / "jars"


def ensure_jars(*groups: Sequence[Jar], origin: Path | None = None) -> tuple[Path, ...]:
    """Local files for these jars, in this order; what the cache lacks is fetched and checked.

    With ``origin``, a folder, it comes from there and not from the registry. Any number of
    processes may call this at once. Raises RuntimeMissingError when the registry cannot be
    reached, the disk is full, or a file is missing or not the pinned one.
    """
    jars = _each_once(groups)
    with writing_to(_jar_folder()):
        folder = private_folder(_jar_folder())
        if _unusable(jars, folder):
            with _only_one_process(folder):
                # Checked again: another process may have fetched them while we waited.
                unusable = _unusable(jars, folder)
                if origin is not None:
                    _take(unusable, origin, folder)
                    unusable = ()
                for round_ in _rounds(unusable):
                    _fetch(round_, folder)
    return tuple(folder / jar.file_name for jar in jars)


def _unusable(jars: Sequence[Jar], folder: Path) -> tuple[Jar, ...]:
    """Those that are not there, or not the pinned files any more: a third of a second for all."""
    found = []
    for jar in jars:
        file = folder / jar.file_name
        is_there = file.is_file()
        if is_there and _sha256(file) == jar.sha256:
            continue
        if is_there:
            _log.warning("cached jar is not the pinned one and is fetched again", file=str(file))
        found.append(jar)
    return tuple(found)


def missing_jars(*groups: Sequence[Jar]) -> tuple[Jar, ...]:
    """Those of the jars that the cache does not hold yet."""
    folder = _jar_folder()
    return tuple(jar for jar in _each_once(groups) if not (folder / jar.file_name).is_file())


def _each_once(groups: Sequence[Sequence[Jar]]) -> tuple[Jar, ...]:
    # A jar may be in two groups; the class path wants it once.
    return tuple(dict.fromkeys(jar for group in groups for jar in group))


def _jar_folder() -> Path:
    return cache_directory() / "jars"


def _rounds(jars: Sequence[Jar]) -> Iterator[tuple[Jar, ...]]:
    """Split the work so that no round holds two revisions of a module: Ivy would evict one."""
    seen: Counter[tuple[str, str]] = Counter()
    rounds: dict[int, list[Jar]] = {}
    for jar in jars:
        module = (jar.organisation, jar.name)
        rounds.setdefault(seen[module], []).append(jar)
        seen[module] += 1
    for number in sorted(rounds):
        yield tuple(rounds[number])


@contextmanager
def _only_one_process(folder: Path) -> Iterator[None]:
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(jars: Sequence[Jar], folder: Path) -> None:
    # Inside the cache, so that the last step is a rename on one file system.
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as scratch_name:
        scratch = Path(scratch_name)
        log = _run_ivy(jars, scratch)
        if any(not (scratch / "lib" / jar.file_name).is_file() for jar in jars):
            raise _unreachable(jars, scratch, log)
        _keep(jars, scratch / "lib", folder)


def _take(jars: Sequence[Jar], origin: Path, folder: Path) -> None:
    """From a prepared folder, which is trusted no more than a registry."""
    missing = [jar.file_name for jar in jars if not (origin / jar.file_name).is_file()]
    if missing:
        message = f"{origin} lacks {len(missing)} of {len(jars)} jars; {missing[0]} is one of them."
        raise RuntimeMissingError(message, next_step="prepare it with this version of frazil")
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as scratch:
        for jar in jars:
            shutil.copyfile(origin / jar.file_name, Path(scratch) / jar.file_name)
        _keep(jars, Path(scratch), folder)


def _keep(jars: Sequence[Jar], fetched: Path, folder: Path) -> None:
    """Move files into the cache once all of them are known to be the pinned ones."""
    for jar in jars:
        if _sha256(fetched / jar.file_name) != jar.sha256:
            message = f"{jar.file_name} is not the file that was pinned: its checksum differs."
            raise RuntimeMissingError(
                message,
                next_step="ask the operator of the package registry why the file changed",
            )
    failpoint(Failpoint.JARS_FETCHED)
    for jar in jars:
        (fetched / jar.file_name).chmod(0o444)
        (fetched / jar.file_name).replace(folder / jar.file_name)


def _run_ivy(jars: Sequence[Jar], scratch: Path) -> str:
    java = find_java()
    (scratch / "ivy.xml").write_bytes(_ivy_module(jars))
    settings = os.environ.get(IVY_SETTINGS_VARIABLE)
    command = [
        str(java.executable),
        *java.options,
        *("-cp", f"{spark_jar_folder()}/*", "org.apache.ivy.Main"),
        *(("-settings", settings) if settings else ()),
        *("-cache", str(scratch / "cache")),
        *("-ivy", str(scratch / "ivy.xml")),
        *("-retrieve", str(scratch / "lib" / _RETRIEVE_PATTERN)),
    ]
    try:
        finished = subprocess.run(  # noqa: S603 - our own Java with our own arguments
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_FETCH_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        message = f"Spark's jars did not arrive within {_FETCH_TIMEOUT_SECONDS} seconds."
        raise RuntimeMissingError(message, next_step="try again on a faster line") from error
    return finished.stdout + finished.stderr


def _ivy_module(jars: Sequence[Jar]) -> bytes:
    ET.register_namespace("m", _MAVEN_NAMESPACE)
    module = ET.Element("ivy-module", version="2.0")
    ET.SubElement(module, "info", organisation="frazil", module="jars")
    ET.SubElement(ET.SubElement(module, "configurations"), "conf", name="default")
    dependencies = ET.SubElement(module, "dependencies")
    for jar in jars:
        # conf master: the jar alone, without sources and javadoc.
        dependency = ET.SubElement(
            dependencies,
            "dependency",
            org=jar.organisation,
            name=jar.name,
            rev=jar.revision,
            conf="default->master",
            transitive="false",
        )
        if jar.classifier or jar.extension != "jar":
            artifact = {"name": jar.name, "type": jar.extension, "ext": jar.extension}
            if jar.classifier:
                artifact[f"{{{_MAVEN_NAMESPACE}}}classifier"] = jar.classifier
            ET.SubElement(dependency, "artifact", artifact)
    return ET.tostring(module)


def _unreachable(jars: Sequence[Jar], scratch: Path, log: str) -> RuntimeMissingError:
    """One sentence for the user; Ivy's own output goes to a file that outlives the attempt."""
    kept = scratch.parent / "last-fetch.log"
    kept.write_text(log, encoding="utf-8")
    missing = [jar.file_name for jar in jars if not (scratch / "lib" / jar.file_name).is_file()]
    free = shutil.disk_usage(scratch.parent).free
    message = (
        f"{len(missing)} of {len(jars)} jars could not be downloaded ({missing[0]} is one of "
        f"them; {free // 2**20} MiB are free on the disk)."
    )
    return RuntimeMissingError(
        message,
        next_step=f"check that the package registry can be reached ({kept} has the details), "
        "then run: frazil setup",
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
