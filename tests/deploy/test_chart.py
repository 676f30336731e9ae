"""What the chart renders is valid, safe, and what frazil understands."""

from __future__ import annotations

import json
import subprocess
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pytest
from ruamel.yaml import YAML
from typer.main import get_command

from frazil.cli.app import app
from frazil.config import load_config
from frazil.version import __version__
from tests.support.deploy.manifests import (
    CHART,
    ROOT,
    Workload,
    objects_of,
    render,
    schema_mistakes,
    workloads,
)
from tests.support.deploy.pod_security import violations
from tools.plain_manifests import MANIFESTS, manifest_text

if TYPE_CHECKING:
    from pathlib import Path

    from frazil.config import Config

VALUES = sorted((CHART / "ci").glob("*-values.yaml"))
# The oldest that the chart names, one between, and the newest released.
VERSIONS = ("1.25", "1.31", "1.37")
# Kinds of an operator; promtool judges what is in the rules.
OPERATOR = "monitoring.coreos.com/v1"
SECRETS = {"DATABASE_URL": "postgresql://h/d", "CATALOG_TOKEN": "sample"}

every_mode = pytest.mark.parametrize("values", VALUES, ids=lambda each: each.name.split("-")[0])


def rendered(helm: Path, values: Path) -> list[dict[str, Any]]:
    return objects_of(render(helm, values))


def test_every_mode_has_values() -> None:
    loaded = [YAML(typ="safe", pure=True).load(each) for each in VALUES]
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    modes = {each.get("mode", "run") for each in loaded}
    assert modes == set(schema["properties"]["mode"]["enum"])


@every_mode
def test_helm_has_no_complaint(helm: Path, values: Path) -> None:
    finished = subprocess.run(
        [helm, "lint", CHART, "--strict", "--values", values],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stdout


@every_mode
def test_three_releases_of_kubernetes_take_every_object(helm: Path, values: Path) -> None:
    objects = rendered(helm, values)
    names = [(each["kind"], each["metadata"]["name"]) for each in objects]
    assert len(names) == len(set(names))
    for version in VERSIONS:
        for each in objects:
            if each["apiVersion"] != OPERATOR:
                assert schema_mistakes(version, each) == [], (version, each["kind"])
    executors = [each for each in workloads(objects) if each.kind == "Executor"]
    for executor in executors:
        pod = {"apiVersion": "v1", "kind": "Pod", **executor.pod}
        assert schema_mistakes(VERSIONS[-1], pod) == []


def test_a_key_that_kubernetes_does_not_know_is_noticed(helm: Path) -> None:
    (service,) = (each for each in rendered(helm, VALUES[-1]) if each["kind"] == "Service")
    service["spec"]["port"] = 1
    assert schema_mistakes(VERSIONS[-1], service) != []


@every_mode
def test_pods_pass_the_restricted_standard_on_a_read_only_root(helm: Path, values: Path) -> None:
    pods = list(workloads(rendered(helm, values)))
    assert pods
    for each in pods:
        assert violations(each.spec) == [], each.name
        assert each.container["securityContext"]["readOnlyRootFilesystem"] is True
        assert each.mounts["/tmp"] == "tmp"


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"hostNetwork": True}, "hostNetwork"),
        ({"securityContext": {"runAsNonRoot": True}}, "main: seccompProfile"),
        ({"securityContext": {}}, "main: may run as root"),
        ({"volumes": [{"name": "a", "hostPath": {"path": "/"}}]}, "volume a: {'hostPath'}"),
        ({"containers": [{"name": "main"}]}, "main: allowPrivilegeEscalation"),
    ],
)
def test_a_pod_that_the_standard_forbids_is_noticed(change: dict[str, Any], found: str) -> None:
    allowed: dict[str, Any] = {
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "main",
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
    }
    assert violations(allowed) == []
    assert found in violations(allowed | change)


def loaded(workload: Workload, objects: list[dict[str, Any]], folder: Path) -> Config:
    """The document of a pod, read as the pod would, with the variables that it has."""
    arguments = workload.container["args"]
    path = PurePosixPath(arguments[arguments.index("-c") + 1])
    assert workload.mounts[str(path.parent)] == "config"
    (volume,) = (each for each in workload.spec["volumes"] if each["name"] == "config")
    maps = {each["metadata"]["name"]: each for each in objects if each["kind"] == "ConfigMap"}
    document = folder / path.name
    source = maps.get(volume["configMap"]["name"])
    if source is None:
        # A ConfigMap of the user's own.
        document.write_text((ROOT / "examples" / "merge-only.yaml").read_text(encoding="utf-8"))
    else:
        document.write_text(source["data"][path.name], encoding="utf-8")
    environ = {each["name"]: each.get("value", "sample") for each in workload.container["env"]}
    return load_config(document, environ=SECRETS | environ).config


@every_mode
def test_frazil_reads_the_document_and_the_command_of_every_pod(
    helm: Path, values: Path, tmp_path: Path
) -> None:
    objects = rendered(helm, values)
    for each in workloads(objects):
        if each.kind == "Executor":
            assert "args" not in each.container
            continue
        verb, *arguments = each.container["args"]
        command: Any = get_command(app)
        command.commands[verb].make_context(verb, arguments, parent=None)
        config = loaded(each, objects, tmp_path)
        port = each.container["ports"][0]["containerPort"]
        assert config.telemetry.listen.endswith(f"0.0.0.0:{port}")
        assert str(config.mirror.index.cache_dir).startswith("/var/lib/frazil/")
        assert each.mounts["/var/lib/frazil"] == "data"
        grace = config.shutdown_grace.total_seconds()
        assert each.spec["terminationGracePeriodSeconds"] > grace


@every_mode
def test_what_runs_until_stopped_is_probed(helm: Path, values: Path) -> None:
    for each in workloads(rendered(helm, values)):
        probed = {key: each.container[key]["httpGet"] for key in each.container if "Probe" in key}
        if each.kind != "Deployment":
            assert probed == {}
            continue
        assert {key: probe["path"] for key, probe in probed.items()} == {
            "startupProbe": "/healthz",
            "livenessProbe": "/healthz",
            "readinessProbe": "/readyz",
        }
        assert {probe["port"] for probe in probed.values()} == {"metrics"}


@every_mode
def test_policies_and_services_choose_the_pods(helm: Path, values: Path) -> None:
    objects = rendered(helm, values)
    labels = [each.pod["metadata"]["labels"] for each in workloads(objects)]
    for each in objects:
        spec = each.get("spec", {})
        chosen = {
            "Service": spec.get("selector"),
            "PodDisruptionBudget": spec.get("selector", {}).get("matchLabels"),
            "NetworkPolicy": spec.get("podSelector", {}).get("matchLabels"),
            "Deployment": spec.get("selector", {}).get("matchLabels"),
        }.get(each["kind"])
        if chosen is not None:
            assert any(chosen.items() <= label.items() for label in labels), each["kind"]


def test_a_pipeline_s_secret_reaches_its_pods_and_executors(helm: Path) -> None:
    for name, secret in (("executors", "frazil-secrets"), ("kafscale", "kafscale-s3")):
        for each in workloads(rendered(helm, CHART / "ci" / f"{name}-values.yaml")):
            assert each.container["envFrom"] == [{"secretRef": {"name": secret}}]


def test_executors_get_a_role_and_the_driver_s_address(helm: Path, tmp_path: Path) -> None:
    objects = rendered(helm, CHART / "ci" / "executors-values.yaml")
    assert {"Role", "RoleBinding"} <= {each["kind"] for each in objects}
    driver, executor = sorted(workloads(objects), key=lambda each: each.kind)
    config = loaded(driver, objects, tmp_path)
    assert config.spark.master == "k8s://https://kubernetes.default.svc"
    conf = config.spark.conf
    assert conf["spark.kubernetes.container.image"] == driver.container["image"]
    assert executor.container["image"] == driver.container["image"]
    # What the user gave stays beside what the chart adds.
    assert conf["spark.executor.memoryOverhead"] == "2g"
    template = PurePosixPath(conf["spark.kubernetes.executor.podTemplateFile"])
    assert driver.mounts[str(template.parent)] == "executors"


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({}, "config: give frazil's document below config"),
        ({"mode": "rum"}, "mode"),
        ({"replicas": 2}, "replicas"),
        ({"config": {"path": "relative.yaml"}}, "path"),
    ],
)
def test_mistaken_values_are_refused(
    helm: Path, values: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    (tmp_path / "values.yaml").write_text(json.dumps(values))
    finished = subprocess.run(
        [helm, "template", "shop", CHART, "--values", tmp_path / "values.yaml"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert finished.returncode != 0
    assert complaint in finished.stderr


def test_the_schema_knows_exactly_the_keys_of_the_values() -> None:
    values = YAML(typ="safe", pure=True).load(CHART / "values.yaml")
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    assert set(schema["properties"]) == {*values, "global"}


def test_the_chart_is_of_this_version() -> None:
    chart = YAML(typ="safe", pure=True).load(CHART / "Chart.yaml")
    assert chart["appVersion"] == chart["version"] == __version__


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_plain_manifests_are_what_the_chart_renders(helm: Path, name: str) -> None:
    file = ROOT / "deploy" / "kubernetes" / name
    assert file.read_text(encoding="utf-8") == manifest_text(helm, name), (
        "run: .venv/bin/python -m tools.plain_manifests"
    )
