"""Manifests as a chart renders them, and what is in them."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema_rs
from ruamel.yaml import YAML

from tools.deploy.deploy_tools import schema_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

Manifest = dict[str, Any]

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "deploy" / "chart" / "frazil"
NAMESPACE = "lake"


@cache
def render(helm: Path, *values: Path) -> str:
    """What helm sends to Kubernetes for these values, later files over earlier ones."""
    given = [word for file in values for word in ("--values", file)]
    return subprocess.run(
        [helm, "template", "shop", CHART, "--namespace", NAMESPACE, *given],
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def objects_of(text: str) -> list[Manifest]:
    """Every object of a file of manifests."""
    return [each for each in YAML(typ="safe", pure=True).load_all(text) if each]


@dataclass(frozen=True)
class Workload:
    """Something that makes pods, with the pod that it makes."""

    kind: str
    name: str
    pod: Manifest

    @property
    def spec(self) -> Manifest:
        spec: Manifest = self.pod["spec"]
        return spec

    @property
    def container(self) -> Manifest:
        (container,) = self.spec["containers"]
        found: Manifest = container
        return found

    @property
    def mounts(self) -> dict[str, str]:
        """Which volume is mounted where."""
        return {each["mountPath"]: each["name"] for each in self.container["volumeMounts"]}


def workloads(objects: list[Manifest]) -> Iterator[Workload]:
    """Deployments, CronJobs, and executors by their template."""
    for each in objects:
        name = each["metadata"]["name"]
        if each["kind"] == "Deployment":
            yield Workload("Deployment", name, each["spec"]["template"])
        elif each["kind"] == "CronJob":
            yield Workload("CronJob", name, each["spec"]["jobTemplate"]["spec"]["template"])
        elif each["kind"] == "ConfigMap" and "executor.yaml" in each["data"]:
            (pod,) = objects_of(each["data"]["executor.yaml"])
            yield Workload("Executor", name, pod)


@cache
def _validator(version: str, kind: str, api: str) -> jsonschema_rs.Validator:
    folder = schema_folder(version)
    assert folder is not None
    group, _, release = api.rpartition("/")
    parts = [kind.lower(), *([group.partition(".")[0]] if group else []), release]
    strict = folder.with_name(f"{folder.name}-strict")

    def retrieve(address: str) -> Any:
        return json.loads((strict / address.rpartition("/")[2]).read_text(encoding="utf-8"))

    schema = retrieve("-".join(parts) + ".json")
    return jsonschema_rs.Draft7Validator(schema, retriever=retrieve, base_uri="json-schema:///k8s/")


def schema_mistakes(version: str, manifest: Manifest) -> list[str]:
    """What a release of Kubernetes would refuse in an object, unknown keys among them."""
    validator = _validator(version, manifest["kind"], manifest["apiVersion"])
    return [
        f"{'.'.join(map(str, mistake.instance_path))}: {mistake.message}"
        for mistake in validator.iter_errors(manifest)
    ]
