"""What can be proven about the image without a container engine; ``make test-image`` builds it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

import pytest
from ruamel.yaml import YAML

from frazil.clients.spark.jars import PRODUCTION_JARS, spark_jar_folder
from frazil.telemetry.metrics import Metrics
from frazil.telemetry.redaction import Redactor
from frazil.version import __version__
from frazil.web.access import HostRule
from frazil.web.app import build_app
from frazil.web.readiness import Readiness
from frazil.web.server import serving
from tests.support.deploy.manifests import CHART, ROOT
from tools.deploy.dockerfile import last_stage, stages, steps
from tools.sbom import bill_of_materials

if TYPE_CHECKING:
    from pathlib import Path

EXECUTOR = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
# What Spark gives a container that is to be an executor.
EXECUTOR_ENVIRONMENT = {
    "SPARK_DRIVER_URL": "spark://driver:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "4g",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.9",
    "SPARK_EXECUTOR_POD_NAME": "shop-exec-3",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_JAVA_OPT_0": "-Da=b c",
    "SPARK_JAVA_OPT_1": "-Dd=e",
}


def is_sent(path: str) -> bool:
    """Whether .dockerignore lets a path through; the last line that matches decides."""
    sent = True
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        pattern = line.removeprefix("!")
        if (
            line
            and not line.startswith("#")
            and (fnmatch(path, pattern) or path.startswith(f"{pattern}/"))
        ):
            sent = line.startswith("!")
    return sent


def test_everything_that_is_copied_is_there_and_sent() -> None:
    copies = [step for step in steps() if step.name == "COPY" and "--from" not in step.text]
    assert len(copies) > 3
    for copy in copies:
        for source in copy.words[:-1]:
            assert (ROOT / source).exists(), source
            assert is_sent(source), source
    assert not is_sent("tests/conftest.py")
    assert not is_sent("requirements/all.lock")


def test_every_step_that_is_run_is_shell() -> None:
    for step in steps():
        if step.name == "RUN":
            subprocess.run(["sh", "-n", "-c", step.text], check=True)


def test_packages_are_installed_by_hash_and_nothing_is_fetched_at_run_time() -> None:
    runs = " ".join(step.text for step in steps() if step.name == "RUN")
    for install in re.findall(r"pip install ([^&]*)", runs):
        assert "--require-hashes" in install or "--no-deps" in install
    assert "frazil setup" in runs
    assert "FRAZIL_CACHE=/opt/frazil/cache" in last_stage()["ENV"].text
    assert not any(step.name == "ADD" for step in steps())


def test_the_image_runs_as_the_user_that_the_chart_names() -> None:
    final = last_stage()
    assert f'image.version="{__version__}"' in final["LABEL"].text
    user = int(final["USER"].text.partition(":")[0])
    helpers = (CHART / "templates" / "_helpers.tpl").read_text(encoding="utf-8")
    assert user > 0
    assert f"runAsUser: {user}" in helpers
    assert f"--uid {user} " in final["RUN"].text
    values = YAML(typ="safe", pure=True).load(CHART / "values.yaml")
    assert final["EXPOSE"].text == str(values["service"]["port"])
    assert json.loads(final["CMD"].text) == ["run", "-c", values["config"]["path"]]
    mounted = set(re.findall(r"mountPath: (/[\w/]+)", helpers))
    assert set(json.loads(final["VOLUME"].text)) <= mounted


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A frazil and a java that print their arguments, one a line."""
    for name in ("frazil", "java"):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\necho {name}\nfor each do echo "$each"; done\n')
        program.chmod(0o755)
    return tmp_path


def entrypoint(programs: Path, *arguments: str, **environment: str) -> list[str]:
    path = f"{programs}:{ROOT / '.venv' / 'bin'}:{os.defpath}"
    finished = subprocess.run(
        ["sh", ROOT / "docker" / "entrypoint.sh", *arguments],
        env={"PATH": path, **environment},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return finished.stdout.splitlines()


def test_the_entry_point_is_frazil(programs: Path) -> None:
    assert entrypoint(programs, "run", "-c", "a b.yaml") == ["frazil", "run", "-c", "a b.yaml"]
    assert entrypoint(programs) == ["frazil"]


def test_the_entry_point_is_an_executor_when_spark_asks_for_one(programs: Path) -> None:
    java, *arguments = entrypoint(programs, "executor", **EXECUTOR_ENVIRONMENT)
    assert java == "java"
    assert arguments[:4] == ["-Da=b c", "-Dd=e", "-Xms4g", "-Xmx4g"]
    assert arguments[arguments.index("-cp") + 1] == f"{spark_jar_folder()}/*"
    given = arguments[arguments.index(EXECUTOR) + 1 :]
    assert dict(zip(given[::2], given[1::2], strict=True)) == {
        "--driver-url": "spark://driver:7078",
        "--executor-id": "3",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.9",
        "--resourceProfileId": "0",
        "--podName": "shop-exec-3",
    }
    (jar,) = spark_jar_folder().glob("spark-kubernetes_*.jar")
    with ZipFile(jar) as archive:
        assert f"{EXECUTOR.replace('.', '/')}.class" in archive.namelist()


def test_the_bill_of_materials_names_every_locked_package_and_jar() -> None:
    bill: dict[str, Any] = bill_of_materials()
    listed = {(each["name"], each["version"]) for each in bill["components"]}
    lock = (ROOT / "requirements" / "production.lock").read_text(encoding="utf-8")
    locked = {
        (name, version)
        for name, version, marker in re.findall(r"(?m)^([\w.-]+)(?:\[[^]]*\])?==(\S+) ?(;?)", lock)
        if not marker
    }
    assert len(locked) > 30
    assert locked <= listed
    assert {(jar.name, jar.revision) for group in PRODUCTION_JARS for jar in group} <= listed


def test_what_starts_and_checks_the_image_is_copied_into_it() -> None:
    copies = [step for step in stages()[-1] if step.name == "COPY" and "from" not in step.options]
    inside = {
        f"{copy.words[-1]}{PurePosixPath(each).name}" for copy in copies for each in copy.words[:-1]
    }
    final = last_stage()
    started = json.loads(final["ENTRYPOINT"].text)[-1]
    checked = json.loads(final["HEALTHCHECK"].text.partition("CMD ")[2])[-1]
    assert {started, checked} <= inside


def test_the_health_check_asks_where_the_process_listens() -> None:
    redactor = Redactor()
    metrics = Metrics("shop", release="1", redactor=redactor)
    app = build_app(metrics, Readiness(), redactor, hosts=HostRule(is_local=True))
    with serving(app, "127.0.0.1:0") as address:
        listen = {"FRAZIL__TELEMETRY__LISTEN": f"0.0.0.0:{address.port}"}
        assert health(listen) == 0
    assert health(listen) != 0


def health(environment: dict[str, str]) -> int:
    check = ROOT / "docker" / "healthcheck.py"
    return subprocess.run(
        [sys.executable, check], env=environment, stderr=subprocess.DEVNULL, check=False
    ).returncode
