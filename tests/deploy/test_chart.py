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
from tools.deploy.plain_manifests import MANIFESTS, manifest_text
from tools.deploy.values_schema import completed

if TYPE_CHECKING:
    from pathlib import Path

    from frazil.config import Config

VALUES = sorted((CHART / "ci").glob("*-values.yaml"))
# The oldest that the chart names, one between, and the newest released.
VERSIONS = ("1.25", "1.31", "1.37")
# Kinds of an operator; promtool judges what is in the rules.
OPERATOR = "monitoring.coreos.com/v1"
SECRETS = {"DATABASE_URL": "postgresql://h/d", "CATALOG_TOKEN": "sample"}

DOCUMENT = {"config": {"pipeline": "shop", "source": {"kind": "postgres"}}}
TOPICS = {"config": {"pipeline": "shop", "source": {"kind": "kafscale"}}}
UNMAINTAINED = {"config": {"pipeline": "shop", "maintenance": {"enabled": False}}}

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
    objects = rendered(helm, CHART / "ci" / "run-values.yaml")
    (service,) = (each for each in objects if each["kind"] == "Service")
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


def loaded(
    workload: Workload,
    objects: list[dict[str, Any]],
    folder: Path,
    secrets: dict[str, str] = SECRETS,
) -> Config:
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
    return load_config(document, environ=secrets | environ).config


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
    secrets = {
        "executors": "frazil-secrets",
        "kafscale": "kafscale-s3",
        "maintain": "frazil-secrets",
    }
    for name, secret in secrets.items():
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
        ({"config": {"pipeline": "shop", "sauce": {}}}, "Additional property sauce"),
        (
            {"config": {"pipeline": "shop", "ingest": {"max_rows": "many"}}},
            "config.ingest.max_rows",
        ),
        ({"config": {"pipeline": "shop", "source": {"kind": "postgres", "dzn": 1}}}, "dzn"),
        # A Secret alone says nothing about what to run.
        ({"existingSecret": "shop"}, "config: give frazil's document below config"),
        (DOCUMENT | {"autoscaling": {"enabled": True}}, "a second one stands by"),
        (TOPICS | {"autoscaling": {"enabled": True}, "mode": "merge"}, "captures nothing"),
        (
            TOPICS | {"autoscaling": {"enabled": True}, "resources": {"requests": None}},
            "needs resources.requests.cpu",
        ),
        (DOCUMENT | {"persistence": {"enabled": True}, "replicaCount": 2}, "one volume cannot"),
        (DOCUMENT | {"executors": {"enabled": True}}, "config.source.spool.dir must name a store"),
        (UNMAINTAINED | {"mode": "maintain"}, "there is nothing to maintain"),
        (UNMAINTAINED | {"maintainCronjob": {"enabled": True}}, "there is nothing to maintain"),
        ({"config": {"pipeline": "shop", "shutdown_grace": "${GRACE}"}}, "no duration"),
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


def with_values(helm: Path, folder: Path, **values: object) -> list[dict[str, Any]]:
    file = folder / "values.yaml"
    file.write_text(json.dumps(values))
    return objects_of(render.__wrapped__(helm, file))


@pytest.mark.parametrize(
    ("grace", "seconds"), [("500ms", 31), ("45s", 75), ("2m", 150), ("1h", 3630), ("1d", 86430)]
)
def test_a_pod_has_the_time_that_the_document_grants(
    helm: Path, tmp_path: Path, grace: str, seconds: int
) -> None:
    objects = with_values(helm, tmp_path, config={"pipeline": "shop", "shutdown_grace": grace})
    (pod,) = workloads(objects)
    assert pod.spec["terminationGracePeriodSeconds"] == seconds


def components(objects: list[dict[str, Any]]) -> dict[str, set[str]]:
    """The kinds of workloads of each role."""
    found: dict[str, set[str]] = {}
    for each in workloads(objects):
        role = each.pod["metadata"]["labels"]["app.kubernetes.io/component"]
        assert each.container["args"][0] == role
        found.setdefault(each.kind, set()).add(role)
    return found


def test_roles_are_three_and_maintenance_may_be_a_job_or_nothing(
    helm: Path, tmp_path: Path
) -> None:
    shop = {"pipeline": "shop"}
    assert components(with_values(helm, tmp_path, mode="roles", config=shop)) == {
        "Deployment": {"ingest", "merge", "maintain"}
    }
    nightly = with_values(
        helm, tmp_path, mode="roles", maintainCronjob={"enabled": True}, config=shop
    )
    assert components(nightly) == {"Deployment": {"ingest", "merge"}, "CronJob": {"maintain"}}
    # The command refuses to start where the document turns maintenance off.
    without = with_values(helm, tmp_path, mode="roles", **UNMAINTAINED)
    assert components(without) == {"Deployment": {"ingest", "merge"}}


def test_workers_that_share_partitions_are_as_many_as_the_load_asks_for(helm: Path) -> None:
    objects = rendered(helm, CHART / "ci" / "autoscaled-values.yaml")
    (scaler,) = (each for each in objects if each["kind"] == "HorizontalPodAutoscaler")
    deployments = {
        each["metadata"]["name"]: each for each in objects if each["kind"] == "Deployment"
    }
    # Helm would undo what the autoscaler does.
    assert "replicas" not in deployments.pop(scaler["spec"]["scaleTargetRef"]["name"])["spec"]
    assert [each["spec"]["replicas"] for each in deployments.values()] == [1]


def test_a_closed_network_still_has_names(helm: Path) -> None:
    objects = rendered(helm, CHART / "ci" / "autoscaled-values.yaml")
    (policy,) = (each for each in objects if each["kind"] == "NetworkPolicy")
    assert "Egress" in policy["spec"]["policyTypes"]
    ports = [port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]]
    assert ports == [53, 53, 443, 2379]


def test_every_dashboard_is_in_the_config_map_as_it_is(helm: Path) -> None:
    objects = rendered(helm, CHART / "ci" / "roles-values.yaml")
    (found,) = (each for each in objects if each["metadata"]["name"].endswith("-dashboards"))
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    boards = {
        name.removeprefix("frazil-"): json.loads(text) for name, text in found["data"].items()
    }
    folder = ROOT / "deploy" / "monitoring" / "dashboards"
    assert boards == {each.name: json.loads(each.read_text()) for each in folder.glob("*.json")}


def test_the_schema_knows_exactly_the_keys_of_the_values() -> None:
    values = YAML(typ="safe", pure=True).load(CHART / "values.yaml")
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    assert set(schema["properties"]) == {*values, "global"}


def test_the_schema_says_of_the_document_what_the_models_say() -> None:
    text = (CHART / "values.schema.json").read_text(encoding="utf-8")
    assert text == completed(text), "run: .venv/bin/python -m tools.deploy.values_schema"


@pytest.mark.parametrize(
    "example", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda e: e.name
)
def test_every_document_that_frazil_reads_is_taken(
    helm: Path, tmp_path: Path, example: Path
) -> None:
    document = YAML(typ="safe", pure=True).load(example)
    assert list(workloads(with_values(helm, tmp_path, config=document)))


def test_the_chart_is_of_this_version() -> None:
    chart = YAML(typ="safe", pure=True).load(CHART / "Chart.yaml")
    assert chart["appVersion"] == chart["version"] == __version__


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_plain_manifests_are_what_the_chart_renders(helm: Path, name: str) -> None:
    file = ROOT / "deploy" / "kubernetes" / name
    assert file.read_text(encoding="utf-8") == manifest_text(helm, name), (
        "run: .venv/bin/python -m tools.deploy.plain_manifests"
    )


# Schemas are fetched together with it.
@pytest.mark.usefixtures("helm")
@pytest.mark.parametrize("name", ["run.yaml", "roles.yaml", "maintain-cronjob.yaml"])
def test_the_secret_to_fill_in_has_what_the_manifests_ask_for(name: str, tmp_path: Path) -> None:
    folder = ROOT / "deploy" / "kubernetes"
    (secret,) = objects_of((folder / "secret.yaml").read_text(encoding="utf-8"))
    assert schema_mistakes(VERSIONS[-1], secret) == []
    objects = objects_of((folder / name).read_text(encoding="utf-8"))
    for each in workloads(objects):
        named = [source["secretRef"]["name"] for source in each.container["envFrom"]]
        assert named == [secret["metadata"]["name"]]
        # Without any other variable than the Secret's.
        assert loaded(each, objects, tmp_path, secret["stringData"]).pipeline == "shop"
